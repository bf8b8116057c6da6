"""Values in the names and paths of lakes: `{value}` in a template, filled so that no value can mean another place.

A value comes from the rows of a table, so it may be anything: empty, `../`, a quote, upper and lower case of one word,
a megabyte. What stands for it in a name is made of lower-case letters, digits and `_` alone.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b32encode
from collections.abc import Iterable

__all__ = ["LONGEST", "PLACEHOLDER", "allowed", "escaped", "filled"]

PLACEHOLDER = "{value}"
LONGEST = 48  # bytes of an escaped value: PostgreSQL cuts names off at 63, silently
_ESCAPED = re.compile(rb"_(?=x)|[^a-z0-9_]")
_DIGEST_SIZE = 20


def escaped(value: str) -> str:
    """The value as a part of a name: `acme` as it is, `A-1` as `_x41_x2d1`. Different values give different texts.

    A byte that may not stand for itself is `_x` and two hex digits, and so is a `_` before an `x`; `_x` alone is the
    empty value. If that is too long, it is the beginning of it, `_xx` and a hash of the whole value.
    """
    raw = value.encode("utf-8", "surrogatepass")
    found = _ESCAPED.sub(lambda byte: b"_x%02x" % byte[0][0], raw).decode() or "_x"
    if len(found) <= LONGEST:
        return found
    digest = "_xx" + b32encode(hashlib.sha256(raw).digest()[:_DIGEST_SIZE]).decode().lower()
    return found[: LONGEST - len(digest)] + digest


def filled(template: str, value: str) -> str:
    """The template with the escaped value in the place of every `{value}`."""
    return template.replace(PLACEHOLDER, escaped(value))


def allowed(value: str, patterns: Iterable[str]) -> bool:
    """Whether the value is one of these, in which `*` stands for any text, also for none."""
    return any(_matches(value, pattern) for pattern in patterns)


def _matches(value: str, pattern: str) -> bool:
    # Not as a regular expression: with several stars it would take forever to refuse a long value.
    first, *rest = pattern.split("*")
    if not rest:
        return value == pattern
    *between, last = rest
    if len(value) < len(first) + len(last) or not value.startswith(first) or not value.endswith(last):
        return False
    at, end = len(first), len(value) - len(last)
    for part in between:
        at = value.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True
