"""Facts that travel to Spark's workers and back by the thousand."""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

__all__ = ["pickled_by_fields"]

Fact = TypeVar("Fact")


def pickled_by_fields(kind: type[Fact]) -> type[Fact]:
    """Let a frozen dataclass of two or more fields be pickled as a call of its class.

    That is many times faster than what dataclasses do by themselves, which is to set one field after the other.
    """
    values = attrgetter(*(each.name for each in fields(kind)))  # type: ignore[arg-type]

    def reduced(self: Fact) -> tuple[Any, ...]:
        return kind, values(self)

    kind.__reduce__ = reduced  # type: ignore[method-assign,assignment]
    return kind
