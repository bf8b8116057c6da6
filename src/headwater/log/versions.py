"""Relation versions: the timeline of every table's columns, in the table `relations`, ordered by (lsn, id)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, replace
from functools import lru_cache
from typing import Any, Literal

from headwater.change import BaseType, Column, Facts, Lsn, Relation, TableName
from headwater.state import State

__all__ = ["Evidence", "Versions"]

# What shows a version: a Relation message before rows, an event trigger's report, or the source's catalog.
Evidence = Literal["rows", "ddl", "catalog"]
_STORED = "lsn, id, oid, namespace, name, identity, columns"
_COLUMNS = f"{_STORED}::text"


class Versions:
    """One group's relation versions. Threads of the single writer may share it."""

    def __init__(self, state: State, group: str) -> None:
        self._state = state
        self._group = group
        self._newest: dict[int, tuple[Lsn, Relation]] | None = None
        self._lock = threading.RLock()

    def forget(self) -> None:
        """Read the state again at the next call."""
        with self._lock:
            self._newest = None

    def newest(self, oid: int, upto: Lsn | None = None) -> tuple[Lsn, Relation] | None:
        """The newest version of a table, and its first LSN; with `upto`, before the transaction that commits there."""
        with self._lock:
            newest = self._loaded().get(oid)
        if newest is None or upto is None or newest[0] < upto:
            return newest
        # Else that transaction was read before and not registered: versions found in it and after it are here already.
        return self.at(oid, upto)

    def at(self, oid: int, position: Lsn) -> tuple[Lsn, Relation] | None:
        """The version of a table at a position, and its first LSN, as the state has it now: for any reader."""
        rows = self._state.query(
            f"SELECT {_COLUMNS} FROM headwater.relations WHERE group_name = %s AND oid = %s"
            " AND (lsn < %s OR lsn = %s AND seen = 'catalog') ORDER BY lsn DESC, id DESC LIMIT 1",
            (self._group, oid, position, position),
        )
        return _version(rows[0]) if rows else None

    def _loaded(self) -> dict[int, tuple[Lsn, Relation]]:
        if self._newest is None:
            rows = self._state.query(
                f"SELECT DISTINCT ON (oid) {_COLUMNS} FROM headwater.relations WHERE group_name = %s"
                " ORDER BY oid, lsn DESC, id DESC",
                (self._group,),
            )
            self._newest = {each.oid: (lsn, each) for lsn, each in map(_version, rows)}
        return self._newest

    def version(self, relation: Relation, lsn: Lsn, before: Relation | None, evidence: Evidence) -> Relation:
        """The relation with its version id: that of `before` if nothing has changed, else a new one.

        A transaction that is read again, because it could not be registered, gets the versions that it had.
        """
        with self._lock:
            for known in (before, *self._read_before(relation.oid, lsn, before)):
                if known is not None and replace(relation, id=known.id) == known:
                    return self._still(known, relation)
            return self.add(replace(relation, id=self.reserve()), lsn, evidence)

    def _read_before(self, oid: int, lsn: Lsn, before: Relation | None) -> list[Relation]:
        """The versions after `before` that an earlier reading of the transaction at `lsn` has found."""
        newest = self._loaded().get(oid)
        if newest is None or newest[0] < lsn or (before is not None and newest[1].id == before.id):
            return []
        rows = self._state.query(
            f"SELECT {_COLUMNS} FROM headwater.relations WHERE group_name = %s AND oid = %s AND lsn = %s"
            " AND seen <> 'catalog' ORDER BY id",
            (self._group, oid, lsn),
        )
        found = [each for _, each in map(_version, rows)]
        ids = [each.id for each in found]
        return found[ids.index(before.id) + 1 :] if before is not None and before.id in ids else found

    def from_catalog(self, relation: Relation) -> Relation:
        """The relation as the catalog shows it, from the log's end on: a new version if it differs from the newest.

        The log does not grow meanwhile, so no delivery can pass that position before the version is recorded.
        """
        with self._lock:
            try:
                with self._state.transaction() as connection:
                    row = connection.execute(
                        "SELECT captured_lsn FROM headwater.groups WHERE name = %s FOR UPDATE", (self._group,)
                    ).fetchone()
                    assert row is not None
                    newest = self.newest(relation.oid)
                    return self.version(relation, row[0], newest and newest[1], "catalog")
            except BaseException:
                self.forget()
                raise

    def reserve(self) -> int:
        """A version id that is not used elsewhere."""
        query = "SELECT nextval(pg_get_serial_sequence('headwater.relations', 'id'))"
        return int(self._state.query(query)[0][0])

    def add(self, relation: Relation, lsn: Lsn, evidence: Evidence) -> Relation:
        """Add a new version, under the id that it has."""
        with self._lock:
            newest = self._loaded()
            with self._state.transaction() as connection:
                connection.execute(
                    f"INSERT INTO headwater.relations (group_name, seen, {_STORED}) OVERRIDING SYSTEM VALUE"
                    " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
                    (
                        self._group,
                        evidence,
                        lsn,
                        relation.id,
                        relation.oid,
                        *relation.table,
                        relation.identity,
                        _json(relation),
                    ),
                )
            before = newest.get(relation.oid)
            if before is None or (before[0], before[1].id) < (lsn, relation.id):
                newest[relation.oid] = lsn, relation
        return relation

    def _still(self, known: Relation, now: Relation) -> Relation:
        """The same version, with the facts that the catalog shows now; a version of the past keeps those it has."""
        lsn, newest = self._loaded()[known.oid]
        moved = replace(now, id=known.id, reason=known.reason)
        if newest.id != known.id or _json(moved) == _json(known):
            return known
        with self._state.transaction() as connection:
            connection.execute("UPDATE headwater.relations SET columns = %s WHERE id = %s", (_json(moved), moved.id))
        self._loaded()[known.oid] = lsn, moved
        return moved

    def by_id(self, ids: Iterable[int]) -> dict[int, Relation]:
        """Versions by id, in the order of the timeline."""
        rows = self._state.query(
            f"SELECT {_COLUMNS} FROM headwater.relations WHERE id = ANY(%s) ORDER BY lsn, id", (sorted(set(ids)),)
        )
        return {each.id: each for _, each in map(_version, rows)}

    def defined(self, oids: Iterable[int], after: Lsn, before: Lsn) -> dict[int, tuple[Lsn, Relation]]:
        """The newest version of each table that counts even without rows, found with after <= lsn < before."""
        rows = self._state.query(
            f"SELECT DISTINCT ON (oid) {_COLUMNS} FROM headwater.relations WHERE group_name = %s AND oid = ANY(%s)"
            " AND seen <> 'rows' AND lsn >= %s AND lsn < %s ORDER BY oid, lsn DESC, id DESC",
            (self._group, sorted(set(oids)), after, before),
        )
        return {each.oid: (lsn, each) for lsn, each in map(_version, rows)}

    def generations(self, positions: Mapping[int, Lsn]) -> dict[int, int]:
        """The generation of each table at the position given for it; 0 if the table is not known there."""
        rows = self._state.query(
            "SELECT DISTINCT ON (r.oid) r.oid, r.columns ->> 'generation' FROM headwater.relations r"
            " JOIN unnest(%s::bigint[], %s::pg_lsn[]) at(oid, lsn) ON at.oid = r.oid AND r.lsn < at.lsn"
            " WHERE r.group_name = %s ORDER BY r.oid, r.lsn DESC, r.id DESC",
            (list(positions), list(positions.values()), self._group),
        )
        return {oid: int(generation) for oid, generation in rows}


def _json(relation: Relation) -> str:
    facts = asdict(relation.facts) | {"generation": relation.generation, "reason": relation.reason}
    return json.dumps(facts | {"columns": [astuple(each) for each in relation.columns]})


def _version(row: tuple[Any, ...]) -> tuple[Lsn, Relation]:
    lsn, id, oid, namespace, name, identity, kept = row
    return lsn, Relation(id, oid, TableName(namespace, name), identity, *_kept(kept))


@lru_cache(maxsize=4096)  # every delivery asks for the versions that it has rows of
def _kept(text: str) -> tuple[tuple[Column, ...], Facts, int, str]:
    kept = json.loads(text)
    columns = tuple(_column(each) for each in kept["columns"])
    facts = Facts(_by_number(kept["files"]), _by_number(kept["parts"]), kept["primary_index"], kept["unsent"])
    return columns, facts, kept["generation"], kept["reason"]


def _by_number(kept: Mapping[str, Any]) -> dict[int, Any]:
    return {int(number): value for number, value in kept.items()}


def _column(kept: Sequence[Any]) -> Column:
    column = Column(*kept)
    return column if column.base is None else replace(column, base=BaseType(*column.base))
