"""`headwater verify`: every group of the config, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from difflib import get_close_matches

from headwater.change import TableName
from headwater.config import Config
from headwater.errors import ConfigError, Unreachable
from headwater.logs import redact
from headwater.spark import JobDied, session
from headwater.state import State
from headwater.supervise.opening import mirroring, open_state
from headwater.verify import Verified, verify

__all__ = ["verify_all"]


def verify_all(config: Config, env: Mapping[str, str], names: Sequence[str], patience: float) -> list[Verified]:
    """Compare the named tables, or all of them."""
    with closing(open_state(config)) as state:
        for group in config.groups:
            if state.group(group) is None:
                raise ConfigError(f"group {group!r} has not run yet", hint="start it with `headwater run`")
        only = _known(state, config, names)
        spark = session(config.spark.master, config.spark.conf, "headwater-verify")
        try:
            found = []
            for group in config.groups:
                with closing(mirroring(config, env, state, group, spark)) as m:
                    found += verify(m, only, patience, _left(state, config, group))
            return found
        except JobDied as died:  # not chained: Spark's message may quote a password
            said = redact(str(died), config.secrets())
            raise Unreachable(f"the comparison failed: {said}", hint="see `headwater check`, and try again") from None
        finally:
            spark.stop()


def _left(state: State, config: Config, group: str) -> list[TableName]:
    """Tables that the config no longer names; a `run` that was started before may still mirror them."""
    named = {entry.table for entry in config.groups[group].tables}
    return [row.source for row in state.tables(group) if row.configured not in named]


def _known(state: State, config: Config, names: Sequence[str]) -> list[TableName]:
    mirrored = {row.source for group in config.groups for row in state.tables(group)}
    wanted = []
    for name in names:
        try:
            table = TableName.parse(name)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        if table not in mirrored:
            close = get_close_matches(name, map(str, mirrored), n=3)
            hint = (
                f"did you mean {' or '.join(close)}?"
                if close
                else f"there are: {', '.join(sorted(map(str, mirrored)))}"
            )
            raise ConfigError(f"table {name!r} is not mirrored", hint=hint)
        wanted.append(table)
    return wanted
