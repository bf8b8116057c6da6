"""Random statements of every sort on tables of every sort: what a seed does, it does again.

Only the catalog is asked what there is, so a transaction that was rolled back needs no undoing here.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import psycopg

from soak.values import ENUM, NESTED, REWRITTEN, TYPES, WIDER, literal

__all__ = ["HISTORY", "TABLES", "Carried", "create"]

KEYS = 30  # the first column of every table is a whole number, mostly below this
PARTITIONS = 6  # of ten keys each; what lies above is in the last

TABLES = {
    "keyed": "CREATE TABLE keyed (id int PRIMARY KEY, alt serial, note text, amount numeric, at timestamptz, n int)",
    "pairs": "CREATE TABLE pairs (a int, v text, b varchar(20), d double precision, PRIMARY KEY (b, a))",
    "bag": "CREATE TABLE bag (a int, b text, c double precision); ALTER TABLE bag REPLICA IDENTITY FULL",
    "docs": "CREATE TABLE docs (id int PRIMARY KEY, body text, note text, size int, mood mood);"
    " ALTER TABLE docs ALTER body SET STORAGE EXTERNAL",  # not compressed: a few kilobytes are stored apart
    "named": "CREATE TABLE named (id int NOT NULL, v text, k smallint NOT NULL DEFAULT 3, day date);"
    " CREATE UNIQUE INDEX named_key ON named (k, id); ALTER TABLE named REPLICA IDENTITY USING INDEX named_key",
    "odd": "CREATE TABLE odd (id bigint PRIMARY KEY, n numeric, m numeric(12,3), at timestamp, l integer[],"
    " w text[], x bytea, u uuid, j jsonb, r real, d date, p numeric[])",
    "ledger": "CREATE TABLE ledger (id int PRIMARY KEY, v text, n numeric(12,3), at timestamptz)",
    "nested": "CREATE TABLE nested (id int PRIMARY KEY, v text, f feel, p nest, l nest[], r feels)",
    "heirs": "CREATE TABLE elders (id int, v text, n int, note text);"
    " CREATE TABLE heirs (PRIMARY KEY (id)) INHERITS (elders)",
    # Until one of them is altered, they are merged in one pass.
    "left_twin": "CREATE TABLE left_twin (id int PRIMARY KEY, v text, n numeric(12,3), at timestamptz)",
    "right_twin": "CREATE TABLE right_twin (id int PRIMARY KEY, v text, n numeric(12,3), at timestamptz)",
    "parts": "CREATE TABLE parts (id int, v text, n int, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
}
NAME_ENDS = ("", "_a", "_b")  # which names they may get
HISTORY = "ledger"  # the one whose every change is kept
REFUSED = (
    psycopg.errors.IntegrityError,
    psycopg.errors.DataError,
    psycopg.errors.ProgrammingError,
    psycopg.errors.LockNotAvailable,
    psycopg.errors.NotSupportedError,
    psycopg.errors.UnsafeNewEnumValueUsage,  # in the transaction that adds it
)


def create(connection: psycopg.Connection) -> None:
    """Make the tables, with a few rows; large transactions will be streamed."""
    name = connection.info.dbname
    connection.execute(f"ALTER DATABASE {name} SET logical_decoding_work_mem = '64kB'")
    for statement in (ENUM, *NESTED, *TABLES.values()):
        connection.execute(statement)
    for number in range(PARTITIONS):
        if number % 2:
            connection.execute(f"CREATE TABLE part{number} PARTITION OF parts {_bounds(number)}")
        else:  # with another order of columns
            connection.execute(f"CREATE TABLE part{number} (n int, v text, id int NOT NULL)")
            connection.execute(f"ALTER TABLE parts ATTACH PARTITION part{number} {_bounds(number)}")
    connection.commit()


def _bounds(number: int) -> str:
    last = "MAXVALUE" if number == PARTITIONS - 1 else str(10 * number + 10)
    return f"FOR VALUES FROM ({10 * number or 'MINVALUE'}) TO ({last})"


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    number: int
    required: bool
    key: bool
    computed: bool  # a generated column, or an identity: no statement writes to it

    @property
    def quoted(self) -> str:
        return f'"{self.name}"'


@dataclass(frozen=True, slots=True)
class Shape:
    """A table as it is now; `sort` is what it was created as."""

    sort: str
    name: str
    columns: tuple[Column, ...]

    @property
    def altered(self) -> str:
        """Which table's columns are altered: of one that inherits them, those of its parent."""
        return "elders" if self.sort == "heirs" else self.name

    @property
    def first(self) -> Column:
        return self.columns[0]

    @property
    def free(self) -> list[Column]:
        """Columns that may go."""
        kept = 2 if self.sort == "keyed" else 1  # `alt` may become the key
        return [each for each in self.columns if each.number > kept and not each.key and not each.computed]


class Undone(Exception):
    pass


class Carried:
    """A writer. `said` is every statement that it sent, `done` how often what was committed."""

    def __init__(self, connection: psycopg.Connection, chance: random.Random, said: list[str] | None = None) -> None:
        self.connection, self.chance = connection, chance
        self.said: list[str] = [] if said is None else said
        self.done: Counter[str] = Counter()
        connection.execute("SET lock_timeout = '300ms'")  # two writers in one thread would wait for ever
        self._oids = {name: self._oid(name) for name in TABLES}
        self._rows: dict[str, Callable[[Shape], None]] = {
            each.__name__.strip("_"): each
            for each in (self._insert, self._update, self._delete, self._move, self._swap, self._again, self._truncate)
        }
        self._shapes: dict[str, Callable[[Shape], None]] = {
            each.__name__.strip("_"): each
            for each in (
                self._add,
                self._drop,
                self._rename,
                self._widen,
                self._retype,
                self._rename_table,
                self._rekey,
                self._identity,
                self._nullable,
                self._partition,
                self._label,
                self._compute,
                self._recompute,
                self._rewrite,
                self._reuse,
                self._renest,
            )
        }

    def _oid(self, name: str) -> int:
        names = ", ".join(f"'{name}{end}'" for end in NAME_ENDS)
        ((oid,),) = self._ask(f"SELECT oid FROM pg_class WHERE relname IN ({names}) AND relkind IN ('r', 'p')")
        return int(str(oid))

    def _ask(self, sql: str) -> list[tuple[object, ...]]:
        return self.connection.execute(sql.encode()).fetchall()

    def _do(self, sql: str) -> None:
        self.said.append(sql + ";")
        self.connection.execute(sql.encode())

    def overlapping(self, other: Carried) -> None:
        """One transaction, or one that is still open while the other writer's is done; before it, perhaps, upkeep."""
        if self.chance.random() < 0.05:
            self._upkeep()
        self.transaction(other.transaction if self.chance.random() < 0.2 else lambda: None)

    def _upkeep(self) -> None:
        """What gives a table another file, and leaves its rows as they are."""
        shape = self._shape(self.chance.choice([each for each in TABLES if each != "parts"]))
        try:
            self._do(f"VACUUM FULL {shape.name}")
        except REFUSED as error:
            self.said.append(f"-- {str(error).splitlines()[0]}")

    def run(self, other: Carried, stop: threading.Event, rate: float) -> None:
        """Transactions, so many a second, until it is stopped."""
        while not stop.wait(1 / rate):
            self.overlapping(other)

    def names(self) -> dict[str, str]:
        """What the tables are called now, by what they were created as."""
        return {sort: self._shape(sort).name for sort in TABLES}

    def transaction(self, meanwhile: Callable[[], object] = lambda: None) -> bool:
        """One transaction; whether it was committed. What PostgreSQL refuses is rolled back, as anybody's would be.

        `meanwhile` is called before its end.
        """
        kinds: list[str] = []
        self.said.append("BEGIN;")
        try:
            with self.connection.transaction():
                for _ in range(self.chance.choice((1, 1, 2, 3))):
                    self._part(kinds)
                meanwhile()
                if self.chance.random() < 0.08:
                    raise Undone
        except Undone:
            self.said.append("ROLLBACK;")
            return False
        except REFUSED as error:
            self.said.append(f"ROLLBACK; -- {str(error).splitlines()[0]}")
            return False
        self.said.append("COMMIT;")
        self.done.update(kinds)
        return True

    def _part(self, kinds: list[str]) -> None:
        """Some steps, under a savepoint or not, kept or not."""
        if self.chance.random() > 0.3:
            self._steps(kinds)
            return
        inner: list[str] = []
        self.said.append("SAVEPOINT s;")
        try:
            with self.connection.transaction():
                self._steps(inner)
                if self.chance.random() < 0.4:
                    raise Undone
        except Undone:
            self.said.append("ROLLBACK TO s;")
            return
        self.said.append("RELEASE s;")
        kinds += inner

    def _steps(self, kinds: list[str]) -> None:
        for _ in range(self.chance.randint(1, 4)):
            shape = self._shape(self.chance.choice(list(TABLES)))
            if self.chance.random() < 0.15:
                kind = self.chance.choice(list(self._shapes))
                self._shapes[kind](shape)
            elif self.chance.random() < 0.03:
                kind = "many"
                self._many(shape)
            else:
                kind = self.chance.choices(list(self._rows), (8, 8, 4, 3, 2, 2, 0.7))[0]
                self._rows[kind](shape)
            kinds.append(kind)

    def _shape(self, sort: str) -> Shape:
        oid = self._oids[sort]
        found = self._ask(
            "SELECT attname, format_type(atttypid, atttypmod), attnum, attnotnull,"
            f" EXISTS (SELECT FROM pg_index WHERE indrelid = {oid} AND (indisprimary OR indisreplident)"
            " AND attnum = ANY(indkey)), attgenerated <> '' OR attidentity <> ''"
            f" FROM pg_attribute WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
        ((name,),) = self._ask(f"SELECT relname FROM pg_class WHERE oid = {oid}")
        return Shape(sort, str(name), tuple(Column(*row) for row in found))  # type: ignore[arg-type]

    # Rows ---------------------------------------------------------------------------------------------------------

    def _value(self, column: Column) -> str:
        if column.number == 1:
            return str(self.chance.randrange(KEYS))
        if not column.required and self.chance.random() < 0.15:
            return "NULL"
        return literal(self.chance, column.type)

    def _insert(self, shape: Shape) -> None:
        columns = [
            each
            for each in shape.columns
            if not each.computed
            and (
                each.number == 1
                or (each.required and (shape.sort, each.number) != ("keyed", 2))
                or (self.chance.random() < 0.85 and (shape.sort, each.number) != ("keyed", 2))
            )
        ]
        rows = [f"({', '.join(map(self._value, columns))})" for _ in range(self.chance.randint(1, 4))]
        if shape.sort == "bag":  # some of them several times
            rows += self.chance.choices(rows, k=2)
        names = ", ".join(each.quoted for each in columns)
        self._do(f"INSERT INTO {shape.name} ({names}) VALUES {', '.join(rows)} ON CONFLICT DO NOTHING")

    def _some(self, shape: Shape) -> str:
        """Which rows."""
        first, chance = shape.first.quoted, self.chance
        if shape.sort == "bag" and chance.random() < 0.5:  # one of several like it
            return f"ctid = (SELECT min(ctid) FROM {shape.name} WHERE {first} = {chance.randrange(KEYS)})"
        modulus = chance.choice((2, 3, 5, 7))
        one = f"{first} = {chance.randrange(KEYS)}"
        return chance.choice((one, one, f"{first} % {modulus} = {chance.randrange(modulus)}"))

    def _update(self, shape: Shape) -> None:
        if shape.free:
            columns = self.chance.sample(shape.free, min(len(shape.free), self.chance.choice((1, 1, 2))))
            new = ", ".join(f"{each.quoted} = {self._value(each)}" for each in columns)
            self._do(f"UPDATE {shape.name} SET {new} WHERE {self._some(shape)}")

    def _delete(self, shape: Shape) -> None:
        self._do(f"DELETE FROM {shape.name} WHERE {self._some(shape)}")

    def _move(self, shape: Shape) -> None:
        """Another key, which no row has; of a partitioned table, perhaps in another partition."""
        first, (a, b) = shape.first.quoted, self.chance.sample(range(KEYS), 2)
        free = f"NOT EXISTS (SELECT FROM {shape.name} WHERE {first} = {b})"
        self._do(f"UPDATE {shape.name} SET {first} = {b} WHERE {first} = {a} AND {free}")

    def _swap(self, shape: Shape) -> None:
        first, (a, b) = shape.first.quoted, self.chance.sample(range(KEYS), 2)
        for old, new in ((a, -1), (b, a), (-1, b)):
            self._do(f"UPDATE {shape.name} SET {first} = {new} WHERE {first} = {old}")

    def _again(self, shape: Shape) -> None:
        self._delete(shape)
        self._insert(shape)
        self._update(shape)

    def _truncate(self, shape: Shape) -> None:
        self._do(f"TRUNCATE {shape.name}")

    def _many(self, shape: Shape) -> None:
        """So many that the server streams them while the transaction is in progress."""
        columns = [each for each in shape.columns if (shape.sort, each.number) != ("keyed", 2) and not each.computed]
        values = ", ".join("i" if each.number == 1 else self._value(each) for each in columns)
        names, last = ", ".join(each.quoted for each in columns), 100 + self.chance.choice((60, 400, 1500))
        self._do(
            f"INSERT INTO {shape.name} ({names}) SELECT {values} FROM generate_series(100, {last}) i"
            " ON CONFLICT DO NOTHING"
        )
        self._update(shape)
        self._do(f"DELETE FROM {shape.name} WHERE {shape.first.quoted} > {self.chance.randint(95, 120)}")

    # Shapes -------------------------------------------------------------------------------------------------------

    def _new_name(self, shape: Shape) -> str:
        taken = {each.name for each in shape.columns}
        return self.chance.choice([name for name in (f"c{n}" for n in range(40)) if name not in taken][:6])

    def _add(self, shape: Shape) -> None:
        if len(shape.columns) > 14:
            return
        kind = self.chance.choice(list(TYPES))
        default = self.chance.choice(("", "", f" DEFAULT {literal(self.chance, kind)}"))
        if kind == "double precision" and self.chance.random() < 0.3:
            default = " DEFAULT random()"  # another one for each row there is
        self._do(f"ALTER TABLE {shape.altered} ADD {self._new_name(shape)} {kind}{default}")

    def _compute(self, shape: Shape) -> None:
        """A column whose values each row that is there gets by itself."""
        if len(shape.columns) > 14:
            return
        kinds = [
            f"integer GENERATED ALWAYS AS ({shape.first.quoted}::integer * 2) STORED",
            "serial",
            "integer GENERATED ALWAYS AS IDENTITY",
        ]
        self._do(f"ALTER TABLE {shape.altered} ADD {self._new_name(shape)} {self.chance.choice(kinds)}")

    def _recompute(self, shape: Shape) -> None:
        """A generated column gets another expression, or none any more: it keeps its values then."""
        may = self._ask(
            f"SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = {self._oids[shape.sort]}"
            " AND attgenerated = 's' AND NOT attisdropped ORDER BY attnum"
        )
        if may:
            acts = ["DROP EXPRESSION"]
            if self.connection.info.server_version >= 170000:
                acts.append(f"SET EXPRESSION AS ({shape.first.quoted}::integer * {self.chance.randrange(9)})")
            ((name,), act) = self.chance.choice(may), self.chance.choice(acts)
            self._do(f"ALTER TABLE {shape.altered} ALTER {name} {act}")

    def _rewrite(self, shape: Shape) -> None:
        """Other values of the same type, by a command that sends none of them."""
        may = [each for each in shape.free if each.type in REWRITTEN]
        if may:
            column = self.chance.choice(may)
            self._do(
                f"ALTER TABLE {shape.altered} ALTER {column.quoted} TYPE {column.type}"
                f" USING {REWRITTEN[column.type].format(column.quoted)}"
            )

    def _reuse(self, shape: Shape) -> None:
        """A name that goes from one column to another, with rows between."""
        if len(shape.columns) > 12:
            return
        name, table = self._new_name(shape), shape.altered
        self._do(f"ALTER TABLE {table} ADD {name} int")
        self._do(f"UPDATE {shape.name} SET {name} = 1 WHERE {self._some(shape)}")
        if self.chance.random() < 0.5:
            self._do(f"ALTER TABLE {table} DROP {name}")
        else:
            self._do(f"ALTER TABLE {table} RENAME {name} TO {name}_old")
        self._do(f"ALTER TABLE {table} ADD {name} int DEFAULT {self.chance.randrange(9)}")
        if self.chance.random() < 0.5:
            self._do(f"UPDATE {shape.name} SET {name} = 2 WHERE {self._some(shape)}")

    def _renest(self, shape: Shape) -> None:
        """A change one level below the types of a table's columns."""
        if shape.sort != "nested":
            return
        if self.chance.random() < 0.5:
            ((label,),) = self._ask("SELECT enum_first(NULL::feel)::text")
            self._do(f"ALTER TYPE feel RENAME VALUE '{label}' TO 'label {self.chance.randrange(10**6)}'")
            return
        added = f"ADD ATTRIBUTE a{self.chance.randrange(10**6)} int"
        ((last, number),) = self._ask(
            "SELECT attname, attnum FROM pg_attribute WHERE attrelid = 'nest'::regclass AND NOT attisdropped"
            " ORDER BY attnum DESC LIMIT 1"
        )
        # In one command the same types as before, and yet another attribute.
        replaces = int(str(number)) > 2 and self.chance.random() < 0.5
        self._do(f"ALTER TYPE nest {f'DROP ATTRIBUTE {last}, ' if replaces else ''}{added}")

    def _drop(self, shape: Shape) -> None:
        may = [each for each in shape.free if not each.type.startswith(("numeric", "timestamp", "integer[]"))]
        if len(may) > 1:
            self._do(f"ALTER TABLE {shape.altered} DROP {self.chance.choice(may).quoted}")

    def _rename(self, shape: Shape) -> None:
        old = self.chance.choice(shape.columns).quoted
        self._do(f"ALTER TABLE {shape.altered} RENAME {old} TO {self._new_name(shape)}")

    def _widen(self, shape: Shape) -> None:
        may = [each for each in shape.columns if each.type in WIDER and not (shape.sort == "parts" and each.key)]
        if may:
            column = self.chance.choice(may)
            self._do(f"ALTER TABLE {shape.altered} ALTER {column.quoted} TYPE {WIDER[column.type]}")

    def _retype(self, shape: Shape) -> None:
        """To text and back, or narrower, which the lake cannot follow."""
        if not shape.free:
            return
        column = self.chance.choice(shape.free)
        kind = {"text": "bytea", "bigint": "integer", "date": "timestamp without time zone"}.get(column.type, "text")
        using = f"convert_to({column.quoted}, 'UTF8')" if kind == "bytea" else f"{column.quoted}::{kind}"
        self._do(
            f"ALTER TABLE {shape.altered} ALTER {column.quoted} DROP DEFAULT,"
            f" ALTER {column.quoted} TYPE {kind} USING {using}"
        )

    def _rename_table(self, shape: Shape) -> None:
        self._do(f"ALTER TABLE {shape.name} RENAME TO {shape.sort}{self.chance.choice(NAME_ENDS)}")

    def _rekey(self, shape: Shape) -> None:
        if shape.sort != "keyed":
            return
        first, second = shape.columns[0].quoted, shape.columns[1].quoted
        key = self.chance.choice((first, f"{first}, {second}", second))
        ((name,),) = self._ask(
            f"SELECT conname FROM pg_constraint WHERE conrelid = {self._oids['keyed']} AND contype = 'p'"
        )
        self._do(f"ALTER TABLE {shape.name} DROP CONSTRAINT {name}, ADD PRIMARY KEY ({key})")

    def _identity(self, shape: Shape) -> None:
        if shape.sort in ("keyed", "pairs", "docs", "odd", "ledger"):
            self._do(f"ALTER TABLE {shape.name} REPLICA IDENTITY {self.chance.choice(('FULL', 'DEFAULT'))}")

    def _nullable(self, shape: Shape) -> None:
        if not shape.free:
            return
        column = self.chance.choice(shape.free)
        act = "DROP" if column.required else "SET"
        if act == "SET":
            self._do(
                f"UPDATE {shape.name} SET {column.quoted} = {literal(self.chance, column.type)}"
                f" WHERE {column.quoted} IS NULL"
            )
        self._do(f"ALTER TABLE {shape.altered} ALTER {column.quoted} {act} NOT NULL")

    def _label(self, shape: Shape) -> None:
        """One more label for the enum of a column."""
        if any(each.type == "mood" for each in shape.columns):
            label = self.chance.choice(TYPES["mood"])
            self._do(f"ALTER TYPE mood ADD VALUE IF NOT EXISTS '{label}' BEFORE 'fine'")

    def _partition(self, shape: Shape) -> None:
        """What happens to one partition is not in the stream."""
        if shape.sort != "parts":
            return
        number = self.chance.randrange(1, PARTITIONS)
        attached = self._ask(f"SELECT FROM pg_inherits WHERE inhrelid = 'part{number}'::regclass")
        if not attached:
            if self.chance.random() < 0.5:
                self._do(f"TRUNCATE part{number}")  # and else it comes with rows
            self._do(f"ALTER TABLE {shape.name} ATTACH PARTITION part{number} {_bounds(number)}")
        elif self.chance.random() < 0.5:
            self._do(f"ALTER TABLE {shape.name} DETACH PARTITION part{number}")
        else:
            self._do(f"TRUNCATE part{number}")
