"""How a command ends: our errors become messages and exit codes, anything else is a bug."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import click

from headwater.commands.options import Options
from headwater.errors import HeadwaterError
from headwater.logs import redact
from headwater.supervise import crash

__all__ = ["Exits", "open_standard_streams"]

_WORST_FIRST = (4, 3, 2, 1)
_INTERRUPTED = 130
_NO_READER = 141  # as if SIGPIPE had ended us


class Exits(click.Group):
    """Turns Headwater's errors, also several at once, into messages and exit codes."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            try:
                return self._invoke(ctx)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:  # the reader of our output has seen enough, as in `headwater query … | head -1`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more when it ends
            return ctx.exit(_NO_READER)

    def _invoke(self, ctx: click.Context) -> Any:
        problems: list[HeadwaterError]
        try:
            return super().invoke(ctx)
        except HeadwaterError as error:
            problems = [error]
        except ExceptionGroup as group:
            ours, others = group.split(HeadwaterError)
            if ours is None or others is not None:
                return self._bug(ctx, group)
            problems = list(_leaves(ours))
        except KeyboardInterrupt:
            return ctx.exit(_INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if isinstance(error, BrokenPipeError) and _reader_gone():
                raise
            return self._bug(ctx, error)
        for problem in problems:
            _tell(f"error: {redact(str(problem), _secrets(ctx))}")
        codes = {problem.exit_code for problem in problems}
        return ctx.exit(next(code for code in _WORST_FIRST if code in codes))

    def _bug(self, ctx: click.Context, error: Exception) -> Any:
        _tell(crash.report(error, _secrets(ctx)))
        return ctx.exit(crash.BUG)


def open_standard_streams() -> None:
    """Have the streams that were closed when we started lead nowhere.

    Else the next file or connection would get the number of one of them, and the messages of every library.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))


def _tell(message: str) -> None:
    """On standard error; that nothing reads it does not change how the command ends."""
    with suppress(BrokenPipeError):
        click.echo(message, err=True)


def _reader_gone() -> bool:
    """Whether standard output is a pipe without a reader; other pipes and sockets can break, too."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _secrets(ctx: click.Context) -> Iterable[str]:
    return ctx.obj.secrets if isinstance(ctx.obj, Options) else ()


def _leaves(group: ExceptionGroup[HeadwaterError]) -> Iterable[HeadwaterError]:
    for each in group.exceptions:
        if isinstance(each, ExceptionGroup):
            yield from _leaves(each)
        else:
            yield each
