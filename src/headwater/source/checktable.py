"""Everything that would keep one table from being mirrored as it is wanted, each with what to do about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Literal

from headwater.change import Column, Relation, TableName
from headwater.errors import ConfigError, HeadwaterError, OperatorMustAct
from headwater.lake import history
from headwater.postgres.connect import Connection
from headwater.source.checkserver import NO_ENCODING
from headwater.source.relations import LISTS_SINCE, described
from headwater.values.types import lake_type

__all__ = [
    "TableWish",
    "access_problems",
    "identity_problems",
    "partial_leaves",
    "table_problems",
    "unreadable_columns",
]

_HISTORY = history.COLUMNS.keys()


@dataclass(frozen=True, slots=True)
class TableWish:
    """A table as the config wants it. `oid` is what the state knows it by, when it has been mirrored already.

    `reserved` are names of columns, in lower case, that its lake keeps for itself.
    """

    table: TableName
    oid: int | None = None
    columns: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    mode: Literal["mirror", "history"] = "mirror"
    append_only: bool = False
    replaced: Literal["copy", "stop"] = "copy"
    like: frozenset[int] = frozenset()  # mirrored tables that are treated as this entry asks, so far
    reserved: frozenset[str] = frozenset()
    matched: bool = False  # by a pattern: it is not listed itself

    @property
    def listed(self) -> bool:
        """Does it need a list of columns in the publication?"""
        return self.columns is not None or bool(self.exclude)

    def carries(self, name: str) -> bool:
        return name not in self.exclude and (self.columns is None or name in self.columns)


def table_problems(connection: Connection, wish: TableWish, oid: int) -> Iterator[HeadwaterError]:
    """All problems of a table that is there."""
    row = connection.execute("SELECT relpersistence::text FROM pg_class WHERE oid = %s", (oid,)).fetchone()
    if row is None:
        return  # dropped this very moment
    relation = described(connection, oid, None)
    table = relation.table
    if row != ("p",):
        yield ConfigError(
            f"table {str(table)!r} is unlogged or temporary: the WAL has nothing of it",
            hint=f"ALTER TABLE {table} SET LOGGED",
        )
    yield from access_problems(connection, oid)
    yield from _hidden(connection, relation)
    yield from identity_problems(connection, wish, relation)
    yield from _columns(connection, wish, relation)


def identity_problems(connection: Connection, wish: TableWish, relation: Relation) -> Iterator[HeadwaterError]:
    """Why PostgreSQL would refuse, or not send in full, updates and deletes of a table once it is published."""
    if not wish.append_only:
        yield from _identity(connection, relation)
        yield from _partitions(connection, relation)


def partial_leaves(connection: Connection, oid: int) -> list[TableName]:
    """The partitions of a table that do not send whole old rows, whatever its own replica identity is."""
    rows = connection.execute(
        "SELECT n.nspname::text, c.relname::text FROM pg_partition_tree(%s::oid::regclass) p"
        " JOIN pg_class c ON c.oid = p.relid JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE p.isleaf AND c.oid <> %s AND c.relreplident <> 'f' ORDER BY 1, 2",
        (oid, oid),
    ).fetchall()
    return [TableName(*row) for row in rows]


def unreadable_columns(connection: Connection, table: TableName, oid: int) -> list[HeadwaterError]:
    """Names of columns that are not UTF-8, which a SQL_ASCII database may have, and a lake may not."""
    if connection.info.parameter_status("server_encoding") != NO_ENCODING:
        return []
    names = connection.execute(
        "SELECT convert_to(attname::text, 'SQL_ASCII') FROM pg_attribute"
        " WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped",
        (oid,),
    ).fetchall()
    return [
        OperatorMustAct(
            f"the name of column {text!r} of table {str(table)!r} is not UTF-8",
            hint="rename it: ALTER TABLE ... RENAME COLUMN ...",
        )
        for text in (name.decode(errors="backslashreplace") for (name,) in names)
        if text.encode() not in {name for (name,) in names}
    ]


def access_problems(connection: Connection, oid: int) -> Iterator[HeadwaterError]:
    """The privileges that our role lacks. Of a partitioned table the leaves are read, so they must be readable too."""
    rows = connection.execute(
        "SELECT current_user::text, has_schema_privilege(n.oid, 'USAGE'), has_table_privilege(c.oid, 'SELECT'),"
        " n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.oid IN (SELECT %(oid)s UNION SELECT relid FROM pg_partition_tree(%(oid)s::oid::regclass)"
        " WHERE isleaf) ORDER BY c.oid <> %(oid)s, 4, 5",
        {"oid": oid},
    ).fetchall()
    for schema, user in dict.fromkeys((schema, user) for user, usable, _, schema, _ in rows if not usable):
        yield OperatorMustAct(
            f"role {user!r} may not use the schema {schema!r}", hint=f'GRANT USAGE ON SCHEMA "{schema}" TO "{user}"'
        )
    for user, _, readable, *name in rows:
        if not readable:
            table = TableName(*name)
            yield OperatorMustAct(f"table {str(table)!r} may not be read", hint=f'GRANT SELECT ON {table} TO "{user}"')


def _hidden(connection: Connection, relation: Relation) -> Iterator[HeadwaterError]:
    """Of a partitioned table the leaves are read, so theirs are the policies that count."""
    rows = connection.execute(
        "SELECT current_user::text, n.nspname::text, c.relname::text"
        " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.oid IN (SELECT %(oid)s UNION SELECT relid FROM pg_partition_tree(%(oid)s::oid::regclass))"
        " AND c.relkind = 'r' AND row_security_active(c.oid) ORDER BY 2, 3",
        {"oid": relation.oid},
    ).fetchall()
    for user, *name in rows:
        table = TableName(*name)
        yield OperatorMustAct(
            f"table {str(table)!r} hides rows from role {user!r} by row level security",
            hint=f'ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY, or ALTER ROLE "{user}" BYPASSRLS',
        )


def _identity(connection: Connection, relation: Relation) -> Iterator[HeadwaterError]:
    table = relation.table
    if relation.identity == "f" or (relation.key and relation.identity != "n"):
        return
    if relation.key:
        lack, move = "has replica identity NOTHING", "DEFAULT"
    else:
        primary = "SELECT FROM pg_index WHERE indrelid = %s AND indisprimary"
        late = connection.execute(primary, (relation.oid,)).fetchone() is not None
        lack, move = (
            "has a deferrable primary key, which is no replica identity" if late else "has no primary key",
            "FULL",
        )
        if relation.identity == "i":
            lack = "has lost the index that was its replica identity"
    yield OperatorMustAct(
        f"table {str(table)!r} {lack}: once it is published, PostgreSQL refuses to update or delete its rows",
        hint=f"ALTER TABLE {table} REPLICA IDENTITY {move};"
        " or `append_only: true` in the config, if its rows never change",
    )


def _partitions(connection: Connection, relation: Relation) -> Iterator[HeadwaterError]:
    """What is sent of an old row is for each partition to say: REPLICA IDENTITY does not reach them from the root."""
    enough = {"d": "df", "i": "if", "n": "dfni"}.get(relation.identity, "df" if relation.key else "f")
    rows = connection.execute(
        "SELECT n.nspname::text, c.relname::text FROM pg_partition_tree(%s::oid::regclass) p"
        " JOIN pg_class c ON c.oid = p.relid JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE p.isleaf AND c.oid <> %s AND c.relreplident::text <> ALL(%s) ORDER BY 1, 2",
        (relation.oid, relation.oid, list(enough)),
    ).fetchall()
    for leaf in (TableName(*row) for row in rows):
        move = {"d": "DEFAULT", "i": "USING INDEX ..."}.get(relation.identity, "FULL")
        yield OperatorMustAct(
            f"partition {str(leaf)!r} of {str(relation.table)!r} has another replica identity than its root",
            hint=f"ALTER TABLE {leaf} REPLICA IDENTITY {move};",
        )


def _columns(connection: Connection, wish: TableWish, relation: Relation) -> Iterator[HeadwaterError]:
    yield from _unknown(connection, wish, relation)
    yield from _unlisted(connection, wish, relation)
    carried = [column for column in relation.columns if wish.carries(column.name)]
    yield from _names(wish, relation.table, carried)
    for column in carried:
        try:
            lake_type(column, wish.types.get(column.name))
        except ConfigError as problem:
            yield ConfigError(f"table {str(relation.table)!r}: {problem.message}", hint=problem.hint)


def _unknown(connection: Connection, wish: TableWish, relation: Relation) -> Iterator[HeadwaterError]:
    sent = {column.name for column in relation.columns}
    generated = {
        row[0]
        for row in connection.execute(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = %s AND attgenerated <> '' AND NOT attisdropped",
            (relation.oid,),
        )
    }
    for key, names in (("columns", wish.columns or ()), ("exclude", wish.exclude), ("types", wish.types)):
        for name in names:
            if name in sent or (name in generated and key == "exclude"):
                continue
            if name in generated:
                yield ConfigError(
                    f"table {str(relation.table)!r}: `{key}` names {name!r}, a generated column that PostgreSQL does"
                    " not send",
                    hint="leave it out: stored ones are sent from PostgreSQL 18 on, virtual ones never",
                )
                continue
            close = get_close_matches(name, sent, n=1, cutoff=0.6)
            hint = f"did you mean {close[0]!r}?" if close else f"it has: {', '.join(sorted(sent))}"
            yield ConfigError(f"table {str(relation.table)!r} has no column {name!r}, which `{key}` names", hint=hint)


def _unlisted(connection: Connection, wish: TableWish, relation: Relation) -> Iterator[HeadwaterError]:
    if not wish.listed:
        return
    table = str(relation.table)
    if connection.info.server_version < LISTS_SINCE:
        yield ConfigError(
            f"table {table!r}: a publication of this server cannot have a list of columns",
            hint="remove `columns` and `exclude`, or upgrade it to PostgreSQL 15 or newer",
        )
    keys = [column.name for column in relation.columns if column.key]
    if relation.identity == "f":
        if any(not wish.carries(column.name) for column in relation.columns):
            yield ConfigError(
                f"table {table!r} has replica identity FULL: all its columns must be mirrored",
                hint=f"remove `columns` and `exclude`, or ALTER TABLE {table} REPLICA IDENTITY DEFAULT;",
            )
    elif lost := [name for name in keys if not wish.carries(name)]:
        yield ConfigError(
            f"table {table!r}: the columns of its key must be mirrored: {', '.join(lost)}",
            hint="add them to `columns`" if wish.columns is not None else "take them out of `exclude`",
        )


def _names(wish: TableWish, table: TableName, carried: list[Column]) -> Iterator[HeadwaterError]:
    alike: defaultdict[str, list[str]] = defaultdict(list)
    for column in carried:
        alike[column.name.lower()].append(column.name)
    for lower, names in alike.items():
        if len(names) > 1:
            yield ConfigError(
                f"table {str(table)!r}: a lake takes the columns {' and '.join(map(repr, names))} for the same",
                hint=f"rename one of them, or leave it out with `exclude: [{names[-1]}]`",
            )
        if lower in wish.reserved or (wish.mode == "history" and lower in _HISTORY):
            what = "keeps for itself" if lower in wish.reserved else "needs for the history"
            yield ConfigError(
                f"table {str(table)!r}: {names[0]!r} is a column name that the lake {what}",
                hint=f"rename the column, or leave it out with `exclude: [{names[0]}]`",
            )
