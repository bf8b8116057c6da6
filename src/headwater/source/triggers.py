"""Schema changes in the stream: event triggers that put a table's definition into the WAL, beside the rows around it.

pgoutput sends no DDL, and a look at the catalog comes too late: between two looks a column can be added, filled,
dropped and added again. An event trigger sees every command at its moment, also those of ordinary roles, and
`pg_logical_emit_message` puts what it saw into the transaction. Tables that no publication of ours has cost their
owners a look into two indexes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from textwrap import dedent

import psycopg

from headwater.postgres.connect import Connection
from headwater.source.definition import definition_sql
from headwater.source.relations import PRINTED

__all__ = ["PREFIX", "install", "install_sql", "installed", "marks", "remove"]

PREFIX = "headwater"  # of the messages; a definition is JSON

_SETTINGS = " ".join(f"SET {name} = '{value}'" for name, value in PRINTED.items())
# What is to be emitted: the definitions of the published tables that these objects are, or are a part of.
_REPORT = """
    DECLARE
      rewrites jsonb := coalesce(nullif(current_setting('headwater.rewrites', true), ''), '{}');
    BEGIN
      RETURN ARRAY(
        WITH RECURSIVE changed(classid, objid) AS (
          SELECT * FROM unnest(classes, objects)
          UNION SELECT used.* FROM changed CROSS JOIN LATERAL (
            SELECT 'pg_type'::regclass::oid, c.reltype FROM pg_class c
            WHERE changed.classid = 'pg_class'::regclass AND c.oid = changed.objid AND c.reltype <> 0
            UNION ALL SELECT changed.classid, i.inhrelid FROM pg_inherits i
            WHERE changed.classid = 'pg_class'::regclass AND i.inhparent = changed.objid
            UNION ALL SELECT d.classid, d.objid FROM pg_depend d
            WHERE changed.classid = 'pg_type'::regclass AND d.refclassid = changed.classid
            AND d.refobjid = changed.objid AND d.classid IN ('pg_type'::regclass, 'pg_class'::regclass)
          ) used
        ), tables(oid) AS (
          SELECT objid FROM changed WHERE classid = 'pg_class'::regclass
          UNION SELECT above.relid FROM changed, pg_partition_ancestors(changed.objid) above
          WHERE changed.classid = 'pg_class'::regclass
        ), published(oid) AS (
          SELECT DISTINCT r.prrelid FROM tables JOIN pg_publication_rel r ON r.prrelid = tables.oid
          JOIN pg_publication p ON p.oid = r.prpubid WHERE p.pubname LIKE 'headwater\\_%'
        )
        -- Of a transaction that is streamed before its end, only the content can name the subtransaction.
        SELECT (headwater.definition(t.oid)::jsonb
                || jsonb_build_object('rewrite', coalesce(rewrites ->> t.oid::text, 'none'), 'xid', (
                   SELECT l.transactionid::text::bigint FROM pg_locks l WHERE l.locktype = 'transactionid'
                   AND l.pid = pg_backend_pid() AND l.granted ORDER BY age(l.transactionid) LIMIT 1)))::text
        FROM published t);
    END
"""
# Whatever goes wrong, the user's command succeeds: what it did is read from the catalog then.
_EMIT = """
    DECLARE
      content text;
      contents text[];
    BEGIN
      BEGIN
        SELECT headwater.report(array_agg(c.classid), array_agg(c.objid)) INTO contents FROM (<objects>) c;
      EXCEPTION WHEN OTHERS THEN
        RAISE WARNING 'headwater could not report a schema change: %', SQLERRM;
        contents := ARRAY['{"lost": true}'];
      END;
      FOREACH content IN ARRAY contents LOOP
        PERFORM pg_logical_emit_message(true, 'headwater', content);
      END LOOP;
      -- To PostgreSQL a message is where its record ends, a row where its record begins. Between subtransactions the
      -- next row would be as early as the message, and might be sent first: so another record comes between them.
      IF cardinality(contents) > 0 THEN
        PERFORM pg_logical_emit_message(true, 'headwater', '');
      END IF;
      <afterwards>
    END
"""
_ALTERED = """
        SELECT classid, objid FROM pg_event_trigger_ddl_commands()
        WHERE classid IN ('pg_class'::regclass, 'pg_type'::regclass)
        UNION SELECT 'pg_class'::regclass, t.oid FROM pg_event_trigger_ddl_commands() s
        JOIN pg_class t ON t.relnamespace = s.objid AND t.relkind IN ('r', 'p')
        WHERE s.classid = 'pg_namespace'::regclass
        UNION SELECT 'pg_class'::regclass, r.prrelid FROM pg_event_trigger_ddl_commands() e
        JOIN pg_publication_rel r ON r.oid = e.objid WHERE e.classid = 'pg_publication_rel'::regclass
"""
_DROPPED = """
        SELECT classid, objid FROM pg_event_trigger_dropped_objects()
        WHERE classid = 'pg_class'::regclass AND objsubid > 0
        AND tg_tag <> 'ALTER TABLE'  -- which is reported at its end
"""
_REWRITE = """
    DECLARE
      rewritten oid := pg_event_trigger_table_rewrite_oid();
      reason int := pg_event_trigger_table_rewrite_reason();
      earlier jsonb;
      these jsonb;
      context text;
    BEGIN
      -- 2: a default or an expression is computed, 4: another type; 1 (persistence) and 8 (access method) keep values.
      IF reason & 6 <> 0 THEN
        -- A command that the client has sent itself, and that says USING nowhere, only casts.
        GET DIAGNOSTICS context = PG_CONTEXT;
        SELECT jsonb_object_agg(t.oid, CASE WHEN reason & 2 = 0 AND context !~ E'\\n'
                                            AND current_query() !~* '\\yusing\\y' THEN 'cast' ELSE 'values' END)
        INTO these FROM (SELECT rewritten UNION SELECT relid FROM pg_partition_ancestors(rewritten)) t(oid);
        earlier := coalesce(nullif(current_setting('headwater.rewrites', true), ''), '{}');
        -- A partitioned table got new values if one of its partitions did.
        PERFORM set_config('headwater.rewrites', (CASE these ->> rewritten::text WHEN 'values' THEN earlier || these
                                                  ELSE these || earlier END)::text, true);
      END IF;
    EXCEPTION WHEN OTHERS THEN
      RAISE WARNING 'headwater could not report a schema change: %', SQLERRM;
      PERFORM pg_logical_emit_message(true, 'headwater', '{"lost": true}');
    END
"""
_TAGS = (
    "ALTER TABLE",
    "ALTER TYPE",
    "ALTER DOMAIN",
    "ALTER SCHEMA",
    "ALTER INDEX",  # these three may rename a table
    "ALTER VIEW",
    "ALTER SEQUENCE",
    "ALTER PUBLICATION",  # which columns of a table are sent
)


@dataclass(frozen=True, slots=True)
class _Function:
    """A function in the schema `headwater`."""

    name: str
    arguments: str
    returns: str
    body: str
    language: str = "plpgsql"

    @property
    def sql(self) -> str:
        settings = _SETTINGS if self.language == "sql" else "SET search_path = pg_catalog"
        return (
            f"CREATE OR REPLACE FUNCTION headwater.{self.name}({self.arguments}) RETURNS {self.returns}"
            f" LANGUAGE {self.language} SECURITY DEFINER {settings} AS $function${self.body}$function$"
        )


@dataclass(frozen=True, slots=True)
class _Trigger:
    """An event trigger; its function has its name without the prefix."""

    name: str
    event: str
    condition: str = ""

    @property
    def sql(self) -> str:
        function = f"headwater.{self.name.removeprefix('headwater_')}"
        return f"CREATE EVENT TRIGGER {self.name} ON {self.event}{self.condition} EXECUTE FUNCTION {function}()"


_TRIGGERS = (
    _Trigger("headwater_rewrite", "table_rewrite"),
    _Trigger("headwater_drop", "sql_drop"),
    _Trigger("headwater_command", "ddl_command_end", f" WHEN TAG IN ({', '.join(map(repr, _TAGS))})"),
)


def install_sql(version: int) -> list[str]:
    """The statements that install the event triggers on a server of that `server_version_num`, by a superuser."""
    revoked = "REVOKE ALL ON ALL FUNCTIONS IN SCHEMA headwater FROM PUBLIC"
    return [
        "CREATE SCHEMA IF NOT EXISTS headwater",
        *(each.sql for each in _functions(version)),
        # OR REPLACE keeps the owner, who could replace the function again: event triggers run it with their own rights.
        *(
            f"ALTER FUNCTION headwater.{each.name}({each.arguments}) OWNER TO CURRENT_USER"
            for each in _functions(version)
        ),
        revoked,
        *(statement for each in _TRIGGERS for statement in (f"DROP EVENT TRIGGER IF EXISTS {each.name}", each.sql)),
        # Also for sessions whose session_replication_role is replica.
        *(f"ALTER EVENT TRIGGER {each.name} ENABLE ALWAYS" for each in _TRIGGERS),
    ]


def marks(connection: Connection) -> str | None:
    """What marks the event triggers as they are now; None if they are not all there, enabled and of this version.

    The marks are others once one was altered or made again: looking now and then misses nothing.
    """
    found = connection.execute(
        "SELECT e.evtname::text, e.evtenabled::text, concat_ws('/', e.oid, e.xmin) FROM pg_event_trigger e"
        " WHERE e.evtname = ANY(%s) ORDER BY 1",
        ([each.name for each in _TRIGGERS],),
    ).fetchall()
    functions = connection.execute(
        "SELECT p.proname::text, md5(p.prosrc), concat_ws('/', p.oid, p.xmin) FROM pg_proc p"
        " JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'headwater' AND p.proname = ANY(%s)"
        " ORDER BY 1",
        ([each.name for each in _functions(connection.info.server_version)],),
    ).fetchall()
    sources = {each.name: _md5(each.body) for each in _functions(connection.info.server_version)}
    whole = len(found) == len(_TRIGGERS) and all(enabled == "A" for _, enabled, _ in found)
    if not whole or {name: source for name, source, _ in functions} != sources:
        return None
    return ",".join(mark for *_, mark in (*found, *functions))


def install(connection: Connection) -> str | None:
    """Install the event triggers where they are missing, if we may; their marks, or None."""
    if (found := marks(connection)) is not None:
        return found
    try:
        with connection.transaction():
            for statement in install_sql(connection.info.server_version):
                connection.execute(statement.encode())
    except psycopg.errors.InsufficientPrivilege:
        return None
    return marks(connection)


def installed(connection: Connection) -> bool:
    """Whether any of the event triggers is there, in whatever state."""
    names = [each.name for each in _TRIGGERS]
    return connection.execute("SELECT FROM pg_event_trigger WHERE evtname = ANY(%s)", (names,)).fetchone() is not None


def remove(connection: Connection) -> None:
    """Remove what `install` has made."""
    with connection.transaction():
        for trigger in _TRIGGERS:
            connection.execute(f"DROP EVENT TRIGGER IF EXISTS {trigger.name}".encode())
        for each in reversed(_functions(connection.info.server_version)):
            connection.execute(f"DROP FUNCTION IF EXISTS headwater.{each.name}({each.arguments})".encode())


def _functions(version: int) -> list[_Function]:
    definition = definition_sql(version, "ARRAY[$1]", "'{}'", "'{}'")
    return [
        _Function("definition", "oid", "json", definition, "sql"),
        _Function("report", "classes oid[], objects oid[]", "text[]", dedent(_REPORT)),
        _Function(
            "command", "", "event_trigger", _emitting(_ALTERED, "PERFORM set_config('headwater.rewrites', '', true);")
        ),
        _Function("drop", "", "event_trigger", _emitting(_DROPPED)),
        _Function("rewrite", "", "event_trigger", dedent(_REWRITE)),
    ]


def _emitting(objects: str, afterwards: str = "") -> str:
    """The body of a trigger that reports what happened to these objects."""
    return dedent(_EMIT.replace("<objects>", objects).replace("<afterwards>", afterwards))


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
