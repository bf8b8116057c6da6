"""The shape timeline of every table: its versions in the table relations, in the order of (lsn, id)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import astuple, replace
from typing import Any, Literal

from headwater.change import BaseType, Column, Lsn, Relation, TableName
from headwater.state import State

__all__ = ["Shapes"]

_COLUMNS = "lsn, id, oid, namespace, name, identity, columns"


class Shapes:
    """One group's relation versions. Threads of the one writer may share it."""

    def __init__(self, state: State, group: str) -> None:
        self._state = state
        self._group = group
        self._newest: dict[int, tuple[Lsn, Relation]] | None = None
        self._lock = threading.RLock()

    def forget(self) -> None:
        """Ask the state again."""
        with self._lock:
            self._newest = None

    def newest(self, oid: int, upto: Lsn | None = None) -> tuple[Lsn, Relation] | None:
        """The newest version of a table that is known, as of a commit at `upto` if told, and since when."""
        with self._lock:
            newest = self._loaded().get(oid)
        if newest is None or upto is None or newest[0] <= upto:
            return newest
        # What comes was read before and not registered: what was told after it is here already.
        rows = self._state.query(
            f"SELECT {_COLUMNS} FROM headwater.relations WHERE group_name = %s AND oid = %s AND lsn <= %s"
            " ORDER BY lsn DESC, id DESC LIMIT 1",
            (self._group, oid, upto),
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

    def version(self, relation: Relation, lsn: Lsn, seen: Literal["stream", "catalog"]) -> Relation:
        """The relation with its version id: the one in force at `lsn` if it is that, else a new one."""
        with self._lock:
            known = self.newest(relation.oid, lsn)
            if known is not None and replace(relation, id=known[1].id) == known[1]:
                return self._still(*known, relation.filenode)
            return self.add(replace(relation, id=self.reserve()), lsn, seen)

    def look(self, relation: Relation) -> Relation:
        """The relation as the catalog shows it, from the log's end on: a new version if it differs from the newest.

        Meanwhile the log does not grow, so no delivery has come past that position before the version is there.
        """
        with self._lock:
            try:
                with self._state.transaction() as connection:
                    row = connection.execute(
                        "SELECT captured_lsn FROM headwater.groups WHERE name = %s FOR UPDATE", (self._group,)
                    ).fetchone()
                    assert row is not None
                    return self.version(relation, row[0], "catalog")
            except BaseException:
                self.forget()
                raise

    def reserve(self) -> int:
        """A version id that nobody else gets."""
        query = "SELECT nextval(pg_get_serial_sequence('headwater.relations', 'id'))"
        return int(self._state.query(query)[0][0])

    def add(self, relation: Relation, lsn: Lsn, seen: Literal["stream", "catalog"]) -> Relation:
        """A new version, under the id that it has."""
        shape = _json(relation)
        with self._lock:
            newest = self._loaded()
            with self._state.transaction() as connection:
                connection.execute(
                    f"INSERT INTO headwater.relations (group_name, seen, {_COLUMNS}) OVERRIDING SYSTEM VALUE"
                    " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
                    (self._group, seen, lsn, relation.id, relation.oid, *relation.table, relation.identity, shape),
                )
            before = newest.get(relation.oid)
            if before is None or (before[0], before[1].id) < (lsn, relation.id):
                newest[relation.oid] = lsn, relation
        return relation

    def _still(self, lsn: Lsn, known: Relation, filenode: int) -> Relation:
        """The same version, in another file perhaps; of one in the past nobody can say any more."""
        newest = self._loaded()
        if filenode in (0, known.filenode) or newest[known.oid][1].id != known.id:
            return known
        moved = replace(known, filenode=filenode)
        with self._state.transaction() as connection:
            connection.execute("UPDATE headwater.relations SET columns = %s WHERE id = %s", (_json(moved), moved.id))
        newest[moved.oid] = lsn, moved
        return moved

    def by_id(self, ids: Iterable[int]) -> dict[int, Relation]:
        """Versions by id, in the order of the timeline."""
        rows = self._state.query(
            f"SELECT {_COLUMNS} FROM headwater.relations WHERE id = ANY(%s) ORDER BY lsn, id", (sorted(set(ids)),)
        )
        return {each.id: each for _, each in map(_version, rows)}

    def from_catalog(self, oids: Iterable[int], after: Lsn, before: Lsn) -> dict[int, tuple[Lsn, Relation]]:
        """The newest shape of each table that was seen in the catalog with after <= lsn < before."""
        rows = self._state.query(
            f"SELECT DISTINCT ON (oid) {_COLUMNS} FROM headwater.relations WHERE group_name = %s AND oid = ANY(%s)"
            " AND seen = 'catalog' AND lsn >= %s AND lsn < %s ORDER BY oid, lsn DESC, id DESC",
            (self._group, sorted(set(oids)), after, before),
        )
        return {each.oid: (lsn, each) for lsn, each in map(_version, rows)}


def _json(relation: Relation) -> str:
    return json.dumps({"filenode": relation.filenode, "columns": [astuple(each) for each in relation.columns]})


def _version(row: tuple[Any, ...]) -> tuple[Lsn, Relation]:
    lsn, id, oid, namespace, name, identity, shape = row
    columns = tuple(_column(*each) for each in shape["columns"])
    return lsn, Relation(id, oid, TableName(namespace, name), identity, columns, shape["filenode"])


def _column(name: str, type_oid: int, typmod: int, key: bool, attnum: int, base: Any, *rest: Any) -> Column:
    return Column(name, type_oid, typmod, key, attnum, None if base is None else BaseType(*base), *rest)
