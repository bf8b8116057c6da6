"""A source table and its mirror: how both are asked for rows that can be compared. Only SQL is made here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from psycopg import sql

from headwater.change import Relation, TableName
from headwater.lake.sqltext import identifier, literal
from headwater.values.types import LakeType
from headwater.verify.replay import replayed
from headwater.verify.spelling import PRINTED, Spelling, spelling, unproven

__all__ = ["BUCKETS", "LINKED", "SIDE", "Pair"]

BUCKETS = 64
SIDE, LINKED = "side", "linked"  # what DuckDB calls PostgreSQL's print, and the mirror's values in quarantine


@dataclass(frozen=True, slots=True)
class Pair:
    """How to compare two tables. Without a key, their rows are compared as a whole.

    `earlier` has other names that columns have had, which a history still uses, by their present ones.
    """

    relation: Relation
    mirror: TableName
    kinds: tuple[LakeType, ...]
    where: str | None = None
    history: bool = False
    earlier: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unproven: bool = False  # the source is a SQL_ASCII database

    @property
    def key(self) -> tuple[int, ...]:
        return self.relation.key

    @property
    def place(self) -> str:
        """The mirror, as DuckDB knows it."""
        return f"lake.{identifier(self.mirror.schema)}.{identifier(self.mirror.name)}"

    def postgres(self, *, show: bool) -> dict[str, sql.Composable]:
        """What to ask PostgreSQL for, by DuckDB's name for it: t0 to compare, b0 if it is a misfit, x0 to show."""
        found: dict[str, str] = {}
        for index, (column, how) in enumerate(self._columns()):
            name = identifier(column)
            found[f"t{index}"] = how.postgres.replace("{}", name)
            if how.misfit not in (None, how.postgres):
                found[f"b{index}"] = str(how.misfit).replace("{}", name)
            if show:
                found[f"x{index}"] = PRINTED.replace("{}", name)
        return {name: sql.SQL(text) for name, text in found.items()}

    def sums(self, lake: bool) -> str:
        """Counts and checksums by bucket; of values that do not fit, one of each for the whole side."""
        halves = "CAST(sum(CAST({0} >> 32 AS BIGINT)) AS BIGINT), CAST(sum(CAST({0} & 4294967295 AS BIGINT)) AS BIGINT)"
        values = f"SELECT {self._bucket}, count(*), {halves.format(f'hash({self._values})')}"
        misfits = [] if lake or self.history else list(self._misfits())
        if not misfits:
            found = f"{values}, 0, 0, 0 FROM ({self._rows(lake)}) GROUP BY ALL"
            if not lake or self.history:
                return found
            each = halves.format("hash(kh, name, value)")
            return f"{found} UNION ALL SELECT -1, 0, 0, 0, count(*), {each} FROM {LINKED} HAVING count(*) > 0"
        counts = " + ".join(f"count({q})" for _, q in misfits)
        hashes = [f"if({q} IS NULL, 0, hash({self.key_hash}, {literal(name)}, {q}))" for name, q in misfits]
        high = " + ".join(f"sum(CAST({h} >> 32 AS BIGINT))" for h in hashes)
        low = " + ".join(f"sum(CAST({h} & 4294967295 AS BIGINT))" for h in hashes)
        return (
            f"{values}, {counts}, CAST({high} AS BIGINT), CAST({low} AS BIGINT) FROM ({self._rows(lake)}) GROUP BY ALL"
        )

    def details(self, lake: bool, buckets: Sequence[int]) -> str:
        """The rows of these buckets, and all values that do not fit: id, key, hash, what to show, how often."""
        wanted = f"{self._bucket} IN ({', '.join(map(str, buckets or [-1]))})"
        entries = [f"CASE WHEN {wanted} THEN {self._entry(self._row_id, f'hash({self._values})', self._shown)} END"]
        if not lake and not self.history:
            for name, q in self._misfits():
                quarantined = f"json_object('quarantine', json_object({literal(name)}, {q}))"
                id_ = f"hash({self.key_hash}, {literal(name)}, {q})"
                entries.append(f"CASE WHEN {q} IS NOT NULL THEN {self._entry(id_, '0', quarantined)} END")
        each = f"SELECT unnest(list_filter([{', '.join(entries)}], lambda e: e IS NOT NULL)) AS e"
        found = f"SELECT e.* FROM ({each} FROM ({self._rows(lake, show=True)}))"
        if lake and not self.history:
            quarantined = "json_object('quarantine', json_object(name, value))"
            entry = f"hash(kh, name, value), key, 0, CAST({quarantined} AS VARCHAR)"
            found += f" UNION ALL SELECT {entry} FROM {LINKED}"
        return (
            "SELECT CAST(id AS VARCHAR), any_value(key), CAST(hash AS VARCHAR), any_value(shown), count(*)"
            f" FROM ({found}) AS found(id, key, hash, shown) GROUP BY id, hash"
        )

    def keys(self, columns: Sequence[str]) -> str:
        """DuckDB's query for the mirror's rows that lack one of these columns: the key's columns, and its hash."""
        lacking = " OR ".join(f"{identifier(column)} IS NULL" for column in columns)
        names = [identifier(self.relation.columns[index].name) for index in self.key]
        spelled = ", ".join(self._spelled(index, name) for index, name in zip(self.key, names, strict=True))
        return f"SELECT {', '.join(names)}, hash({spelled}) AS kh FROM {self.place} WHERE {lacking}"

    def doubled(self) -> str:
        """DuckDB's query for changes that a history has more than once: their number, and the first one's position."""
        same = ", ".join(["_op", "_commit_lsn", "_seq", *(identifier(self.relation.columns[i].name) for i in self.key)])
        each = f"SELECT _commit_lsn FROM {self.place} GROUP BY {same} HAVING count(*) > 1"
        return f"SELECT count(*), min(_commit_lsn) FROM ({each})"

    @property
    def key_hash(self) -> str:
        return f"hash({', '.join(f'c{index}' for index in self.key)})" if self.key else "CAST(0 AS UBIGINT)"

    def _columns(self) -> list[tuple[str, Spelling]]:
        how = (unproven(spelling(kind)) if self.unproven else spelling(kind) for kind in self.kinds)
        return [(column.name, each) for column, each in zip(self.relation.columns, how, strict=True)]

    def _rows(self, lake: bool, *, show: bool = False) -> str:
        """DuckDB's query for c0 … to compare, q0 … that do not fit and s0 … to show, of the mirror or of the print."""
        parts = []
        for index, (column, how) in enumerate(self._columns()):
            name = identifier(column)
            read = how.lake.replace("{}", name) if lake else how.read.replace("{}", f"t{index}")
            parts.append(f"{read} AS c{index}")
            if not lake and how.misfit is not None:
                printed = f"t{index}" if how.misfit == how.postgres else f"b{index}"
                parts.append(f"CASE WHEN c{index} IS NULL THEN ltrim({printed}, chr(0)) END AS q{index}")
            if show:
                parts.append(f"{f'CAST({name} AS VARCHAR)' if lake else f'x{index}'} AS s{index}")
        origin = SIDE
        if lake:
            changes = replayed(self.place, self.relation, self.kinds, self.earlier)
            origin = f"({changes})" if self.history else self.place
        return f"SELECT {', '.join(parts)} FROM {origin}"

    def _misfits(self) -> list[tuple[str, str]]:
        found = enumerate(self._columns())
        return [(name, f"q{index}") for index, (name, how) in found if how.misfit is not None]

    def _spelled(self, index: int, name: str) -> str:
        return spelling(self.kinds[index]).lake.replace("{}", name)

    def _entry(self, id_: str, hash_: str, shown: str) -> str:
        key = f"CAST({self._object(self.key)} AS VARCHAR)" if self.key else "''"
        return f"{{'id': {id_}, 'key': {key}, 'hash': {hash_}, 'shown': CAST({shown} AS VARCHAR)}}"

    def _object(self, indexes: Sequence[int]) -> str:
        pairs = (f"{literal(self.relation.columns[index].name)}, s{index}" for index in indexes)
        return f"json_object({', '.join(pairs)})"

    @property
    def _shown(self) -> str:
        return self._object(range(len(self.kinds)))

    @property
    def _values(self) -> str:
        return ", ".join(f"c{index}" for index in range(len(self.kinds)))

    @property
    def _row_id(self) -> str:
        return self.key_hash if self.key else f"hash({self._values})"

    @property
    def _bucket(self) -> str:
        return f"CAST({self._row_id} % {BUCKETS} AS INTEGER)"
