"""What a lake knows about a group beside its tables: their names, and positions of tables that had no change.

A table's own snapshots say how far it is. One that has had no change since is further, and a snapshot of its own for
each delivery would cost a commit: the group's ledger says it, in one property of the quarantine's table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple

from headwater.change import TableName
from headwater.lake.stream import P

__all__ = ["Ledger", "LedgerEntry", "Replaced", "ledger_key"]


class Replaced(NamedTuple):
    """A mirror that goes once the copy of another table has landed; the UUID is that of the lake's table."""

    oid: int
    name: TableName
    uuid: str


@dataclass(frozen=True, slots=True)
class LedgerEntry(Generic[P]):
    """The names that a table may have, and how far it stands without a change.

    `floor` are a position that the table's own snapshots showed, and the later one that it stood at then. `copy` is the
    attempt that was the last to copy it, and `replaced` are the mirrors that go with that.
    """

    names: tuple[TableName, ...]
    floor: tuple[P, P] | None = None
    copy: str = ""
    replaced: tuple[Replaced, ...] = ()


@dataclass(frozen=True, slots=True)
class Ledger(Generic[P]):
    """By the source's OID."""

    entries: Mapping[int, LedgerEntry[P]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str | None, kind: type[P]) -> Ledger[P]:
        return cls(dict(_parsed(json.loads(text), kind))) if text else cls()

    def __str__(self) -> str:
        return json.dumps({str(oid): _written(each) for oid, each in self.entries.items()})

    def with_entries(self, entries: Mapping[int, LedgerEntry[P]]) -> Ledger[P]:
        return Ledger({**self.entries, **entries})

    def without(self, oids: set[int]) -> Ledger[P]:
        return Ledger({oid: each for oid, each in self.entries.items() if oid not in oids})


def _written(entry: LedgerEntry[P]) -> dict[str, Any]:
    found: dict[str, Any] = {"names": entry.names}
    if entry.floor is not None:
        found |= dict(zip(("own", "at"), map(str, entry.floor), strict=True))
    return found | ({"copy": entry.copy, "replaced": entry.replaced} if entry.replaced else {})


def _parsed(kept: dict[str, dict[str, Any]], kind: type[P]) -> Iterator[tuple[int, LedgerEntry[P]]]:
    for oid, each in kept.items():
        names = tuple(TableName(*name) for name in each["names"])
        replaced = tuple(Replaced(old, TableName(*name), uuid) for old, name, uuid in each.get("replaced", ()))
        floor = (kind.parse(each["own"]), kind.parse(each["at"])) if "own" in each else None
        yield int(oid), LedgerEntry(names, floor, each.get("copy", ""), replaced)


def ledger_key(source: str) -> str:
    """The property that holds a group's ledger."""
    return f"headwater.ledger.{source}"
