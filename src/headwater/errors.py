"""Every error that Headwater raises on purpose. A class exists only if a caller or an operator acts differently on it.

Any other exception that ends a command is a bug: exit 70, see `supervise/crash.py`.

HeadwaterError
├── ConfigError          exit 2   the operator edits the file or the command line
│   └── AccessDenied              a server refuses the login: where it has worked before, it is tried again
├── Unreachable          exit 3   a system does not answer: try again later
│   └── TimedOut                  it kept us waiting for as long as it may: another try at once would wait again
├── Outdated             exit 3   what was planned to be read was moved meanwhile: plan again
├── LogFull              exit 3   capture waits until tables and routes have passed some of the log
├── OperatorMustAct      exit 4   trying again does not help
│   ├── LockHeld                  another process has taken our place: what can wait for it, waits
│   ├── SlotLost                  the WAL is gone: the tables must be copied again
│   └── LogGap                    segments are gone: the tables that need them must be copied again
├── CheckFailed          exit 1   a check found a difference, or a table is ERRORED
├── TableError                    one table cannot go on; the others do
│   └── CannotFollow              copying the table again would help
└── CommitError
    ├── CommitConflict            did not land: plan again on the newest snapshot
    ├── CommitUnknown             may have landed: ask the lake its position first
    └── AlreadyDelivered          the lake is not where the batch starts: read its position again
"""

from __future__ import annotations

from typing import Literal

__all__ = [
    "AccessDenied",
    "AlreadyDelivered",
    "CannotFollow",
    "CheckFailed",
    "CommitConflict",
    "CommitError",
    "CommitUnknown",
    "ConfigError",
    "ErrorKind",
    "HeadwaterError",
    "LockHeld",
    "LogFull",
    "LogGap",
    "OperatorMustAct",
    "Outdated",
    "SlotLost",
    "TableError",
    "TimedOut",
    "Unreachable",
]

# What helps against a table's error: to change its table or its config, more memory, or a fix of this program.
ErrorKind = Literal["configuration", "resource", "bug"]


class HeadwaterError(Exception):
    """A message for people: what failed, on which value, and after `hint:` what to do next."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[type[HeadwaterError], tuple[str], dict[str, object]]:
        return type(self), (self.message,), self.__dict__  # survives a process pool, hint included

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class ConfigError(HeadwaterError):
    exit_code = 2


class AccessDenied(ConfigError):
    pass


class Unreachable(HeadwaterError):
    exit_code = 3


class TimedOut(Unreachable):
    pass


class Outdated(HeadwaterError):
    exit_code = 3


class LogFull(HeadwaterError):
    exit_code = 3


class OperatorMustAct(HeadwaterError):
    exit_code = 4


class LockHeld(OperatorMustAct):
    pass


class SlotLost(OperatorMustAct):
    pass


class LogGap(OperatorMustAct):
    pass


class CheckFailed(HeadwaterError):
    exit_code = 1


class TableError(HeadwaterError):
    def __init__(self, message: str, *, hint: str = "", kind: ErrorKind = "configuration") -> None:
        super().__init__(message, hint=hint)
        self.kind = kind


class CannotFollow(TableError):
    pass


class CommitError(HeadwaterError):
    exit_code = 3


class CommitConflict(CommitError):
    pass


class CommitUnknown(CommitError):
    pass


class AlreadyDelivered(CommitError):
    pass
