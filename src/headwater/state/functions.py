"""The SQL functions of the schema `headwater`: an operator's requests, checked as far as the state can check them.

They run with the rights of the role that created them, and only for members of the roles below. Names that begin with
an underscore are theirs alone. A table is known by its name as the config writes it: schema.table, no case folding.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent

__all__ = ["ADMIN", "GROUP_SETTINGS", "READER", "REQUESTS", "TABLE_OPTIONS", "Function", "text_array"]

ADMIN, READER = "headwater_admin", "headwater_reader"
# What an entry of the config's `tables:` may have beside `table` and `as`, and a group beside its lake and its tables.
TABLE_OPTIONS = "partition_by", "mode", "columns", "exclude", "types", "schema_changes", "append_only", "replaced"
GROUP_SETTINGS = "flush", "copy"


@dataclass(frozen=True, slots=True)
class Function:
    """A function in the schema `headwater`; without `callers` only other functions call it."""

    name: str
    arguments: str
    returns: str
    body: str
    callers: tuple[str, ...] = ()

    @property
    def sql(self) -> str:
        """Created, and not for everyone to call."""
        rights = f"SECURITY {'DEFINER' if self.callers else 'INVOKER'} SET search_path = pg_catalog, pg_temp"
        return (
            f"CREATE OR REPLACE FUNCTION headwater.{self.name}({self.arguments}) RETURNS {self.returns}"
            f" LANGUAGE plpgsql {rights} AS $function${dedent(self.body)}$function$;\n"
            f"REVOKE ALL ON FUNCTION headwater.{self.name} FROM PUBLIC"
        )


def text_array(names: tuple[str, ...]) -> str:
    """Plain names as an array in SQL."""
    return f"'{{{','.join(names)}}}'::text[]"


def _changing(name: str, arguments: str, work: str, variables: str = "") -> Function:
    """A function that makes a request."""
    body = f"""
    {f"DECLARE {variables}" if variables else ""}
    BEGIN
      PERFORM headwater._allow({text_array((ADMIN,))});{work}
    END
    """
    return Function(name, arguments, "bigint", body, (ADMIN,))


def _of_table(verb: str, check: str = "") -> Function:
    """A request for a table that a group has."""
    work = f"""
      wanted := headwater._named(source_table);
      home := headwater._holder(wanted, group_name);{check}
      RETURN headwater._request('{verb}', home, wanted);"""
    return _changing(verb, "source_table text, group_name text DEFAULT NULL", work, "wanted text[]; home text;")


def _of_group(verb: str, check: str = "") -> Function:
    """A request for a group."""
    work = f"""
      home := headwater._group(name);{check}
      RETURN headwater._request('{verb}', home, NULL);"""
    return _changing(verb, "name text", work, "home text;")


_ALLOW = """
    DECLARE
      owner oid := (SELECT n.nspowner FROM pg_namespace n WHERE n.nspname = 'headwater');
    BEGIN
      IF NOT pg_has_role(session_user, current_user, 'MEMBER') AND NOT pg_has_role(session_user, owner, 'MEMBER')
         AND NOT EXISTS (SELECT FROM pg_roles r
                         WHERE r.rolname = ANY (roles) AND pg_has_role(session_user, r.oid, 'MEMBER')) THEN
        RAISE EXCEPTION 'role % is not a member of %', quote_literal(session_user), array_to_string(roles, ' or ')
          USING ERRCODE = 'insufficient_privilege', HINT = format('GRANT %I TO %I', roles[1], session_user);
      END IF;
    END
"""
_NAMED = r"""
    DECLARE
      parts text[] := regexp_match(spelled, '^(?:"((?:[^"]|"")+)"|([^."]+))(?:\.(?:"((?:[^"]|"")+)"|([^."]+)))?$');
      first text := coalesce(replace(parts[1], '""', '"'), parts[2]);
      second text := coalesce(replace(parts[3], '""', '"'), parts[4]);
    BEGIN
      IF first IS NULL THEN
        RAISE EXCEPTION '% is not the name of a table', quote_nullable(spelled) USING HINT =
          'write schema.table, each as PostgreSQL stores it; one with a dot or a quote in it in double quotes';
      END IF;
      RETURN CASE WHEN second IS NULL THEN ARRAY['public', first] ELSE ARRAY[first, second] END;
    END
"""
_SPELLED = """
    BEGIN
      RETURN (SELECT string_agg(CASE WHEN part ~ '^[a-z_][a-z0-9_$]*$' THEN part
                                     ELSE '"' || replace(part, '"', '""') || '"' END, '.' ORDER BY place)
              FROM unnest(parts) WITH ORDINALITY AS given(part, place));
    END
"""
_KNOWN = """
    BEGIN
      RETURN ARRAY(SELECT g.name FROM headwater.groups g UNION SELECT a.name FROM headwater.added_groups a
                   UNION SELECT d.group_name FROM headwater.declared_tables d
                   UNION SELECT r.group_name FROM headwater.requests r
                   WHERE r.verb = 'create_group' AND r.handled_at IS NULL ORDER BY 1);
    END
"""
_GROUP = """
    DECLARE
      known text[] := headwater._known();
    BEGIN
      IF wanted = ANY (known) THEN
        RETURN wanted;
      END IF;
      RAISE EXCEPTION 'there is no group %', quote_nullable(wanted) USING HINT =
        coalesce('there are: ' || nullif(array_to_string(known, ', '), ''), 'headwater.create_group makes one');
    END
"""
_ONLY_GROUP = """
    DECLARE
      known text[] := headwater._known();
    BEGIN
      IF cardinality(known) = 0 THEN
        RAISE EXCEPTION 'there is no group yet' USING HINT =
          'headwater.create_group makes one, and `headwater run` those of its config';
      ELSIF cardinality(known) > 1 THEN
        RAISE EXCEPTION 'there is more than one group: %', array_to_string(known, ', ')
          USING HINT = format('say which: group_name => %L', known[1]);
      END IF;
      RETURN known[1];
    END
"""
# The last request that waits decides; else what is mirrored, was added, or is in the config.
_HAS = """
    DECLARE
      name text := headwater._spelled(wanted);
    BEGIN
      RETURN coalesce(
        (SELECT r.verb = 'add_table' OR (r.verb = 'move_table' AND r.arguments ->> 'to_group' = home)
         FROM headwater.requests r WHERE r.handled_at IS NULL AND (
           (r.group_name = home AND r.table_name = name AND r.verb IN ('add_table', 'remove_table', 'move_table'))
           OR (r.verb = 'move_table' AND r.table_name = name AND r.arguments ->> 'to_group' = home)
           OR (r.group_name = home AND r.verb = 'drop_group')) ORDER BY r.id DESC LIMIT 1),
        headwater._declared(home, wanted)
        OR EXISTS (SELECT FROM headwater.added_tables a WHERE a.group_name = home AND a.table_name = name)
        OR EXISTS (SELECT FROM headwater.tables t WHERE t.group_name = home AND t.state <> 'REMOVED' AND wanted IN
                   (ARRAY[t.namespace, t.name], ARRAY[t.configured_schema, t.configured_table])));
    END
"""
# It may have another name in the source by now.
_DECLARED = """
    BEGIN
      RETURN EXISTS (SELECT FROM headwater.declared_tables d WHERE d.group_name = home AND (
        d.table_name = headwater._spelled(wanted)
        OR d.table_name IN (SELECT headwater._spelled(ARRAY[t.configured_schema, t.configured_table])
                            FROM headwater.tables t
                            WHERE t.group_name = home AND t.namespace = wanted[1] AND t.name = wanted[2])));
    END
"""
_HOLDER = """
    DECLARE
      name text := headwater._spelled(wanted);
      homes text[] := ARRAY(SELECT g FROM unnest(headwater._known()) g WHERE headwater._has(g, wanted));
    BEGIN
      IF wanted_group IS NOT NULL THEN
        PERFORM headwater._group(wanted_group);
      END IF;
      IF coalesce(wanted_group = ANY (homes), cardinality(homes) = 1) THEN
        RETURN coalesce(wanted_group, homes[1]);
      ELSIF cardinality(homes) = 0 THEN
        RAISE EXCEPTION 'there is no table % in any group', quote_literal(name)
          USING HINT = 'SELECT * FROM headwater.status shows those that there are';
      ELSIF wanted_group IS NULL THEN
        RAISE EXCEPTION 'table % is in more than one group: %', quote_literal(name), array_to_string(homes, ', ')
          USING HINT = format('say which: group_name => %L', homes[1]);
      END IF;
      RAISE EXCEPTION 'table % is not in group %', quote_literal(name), quote_literal(wanted_group)
        USING HINT = format('it is in: %s', array_to_string(homes, ', '));
    END
"""
_UNDECLARED = """
    BEGIN
      IF headwater._declared(home, wanted) THEN
        RAISE EXCEPTION 'table % of group % is declared in headwater.yaml', quote_literal(headwater._spelled(wanted)),
          quote_literal(home) USING HINT = 'what the file declares is ensured: take it out there';
      END IF;
    END
"""
_HERE = """
    BEGIN
      RETURN (SELECT c.system_identifier || '/' || current_database() FROM pg_control_system() c);
    END
"""
_EXISTING = """
    BEGIN
      IF NOT EXISTS (SELECT FROM headwater.groups g WHERE g.source_id = headwater._here())
         OR wanted[1] || wanted[2] LIKE '%*%' OR EXISTS (
           SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
           WHERE n.nspname = wanted[1] AND c.relname = wanted[2] AND c.relkind IN ('r', 'p')) THEN
        RETURN;
      END IF;
      RAISE EXCEPTION 'there is no table % in the source', quote_literal(headwater._spelled(wanted)) USING HINT =
        'write its name as PostgreSQL stores it, with its schema; upper case stays upper case';
    END
"""
_ONLY_KEYS = """
    DECLARE
      odd text;
    BEGIN
      IF jsonb_typeof(given) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'the % are not a JSON object: %', what, quote_nullable(given::text)
          USING HINT = format('write %L', '{}');
      END IF;
      odd := (SELECT k FROM jsonb_object_keys(given) k WHERE k <> ALL (allowed) ORDER BY 1 LIMIT 1);
      IF odd IS NOT NULL THEN
        RAISE EXCEPTION 'the % have an unknown key %', what, quote_literal(odd)
          USING HINT = format('known are: %s', array_to_string(allowed, ', '));
      END IF;
    END
"""
_REQUEST = """
    DECLARE
      made bigint;
    BEGIN
      INSERT INTO headwater.requests (verb, group_name, table_name, arguments)
      VALUES (wish, home, headwater._spelled(wanted), given) RETURNING id INTO made;
      PERFORM pg_notify('headwater', made::text);
      RETURN made;
    END
"""
_ADD_TABLE = f"""
      wanted := headwater._named(source_table);
      home := CASE WHEN group_name IS NULL THEN headwater._only_group() ELSE headwater._group(group_name) END;
      PERFORM headwater._only_keys('options', options, {text_array(TABLE_OPTIONS)});
      IF copy IS NULL THEN
        RAISE EXCEPTION 'copy is null' USING HINT = 'true copies the rows that the table has, false only what changes';
      ELSIF headwater._has(home, wanted) THEN
        RAISE EXCEPTION 'table % is already in group %', quote_literal(headwater._spelled(wanted)), quote_literal(home)
          USING HINT = 'headwater.resync_table copies it again';
      END IF;
      PERFORM headwater._existing(wanted);
      entry := jsonb_build_object('table', headwater._spelled(wanted)) || options;
      IF lake_table IS NOT NULL THEN
        entry := entry || jsonb_build_object('as', headwater._spelled(headwater._named(lake_table)));
      END IF;
      RETURN headwater._request('add_table', home, wanted, jsonb_build_object('entry', entry, 'copy', copy));"""
_UNDECLARED_TABLE = """
      PERFORM headwater._undeclared(home, wanted);"""
_NOT_PAUSED = """
      IF EXISTS (SELECT FROM headwater.tables t WHERE t.group_name = home AND t.state = 'PAUSED' AND wanted IN
                 (ARRAY[t.namespace, t.name], ARRAY[t.configured_schema, t.configured_table]))
         AND NOT EXISTS (SELECT FROM headwater.requests r WHERE r.group_name = home AND r.handled_at IS NULL
                         AND r.verb = 'resume_table' AND r.table_name = headwater._spelled(wanted)) THEN
        RAISE EXCEPTION 'table % of group % is PAUSED, and would not be copied',
          quote_literal(headwater._spelled(wanted)), quote_literal(home) USING HINT =
          format('first SELECT headwater.resume_table(%L)', headwater._spelled(wanted));
      END IF;"""
_MOVE_TABLE = """
      wanted := headwater._named(source_table);
      home := headwater._holder(wanted, group_name);
      PERFORM headwater._group(to_group);
      IF headwater._has(to_group, wanted) THEN
        RAISE EXCEPTION 'table % is already in group %', quote_literal(headwater._spelled(wanted)),
          quote_literal(to_group) USING HINT = 'headwater.remove_table takes it out of the other one';
      END IF;
      PERFORM headwater._undeclared(home, wanted);
      RETURN headwater._request('move_table', home, wanted, jsonb_build_object('to_group', to_group));"""
_CREATE_GROUP = f"""
      PERFORM headwater._only_keys('settings', settings, {text_array(GROUP_SETTINGS)});
      IF (name ~ '^[a-z0-9_]{{1,40}}$') IS NOT TRUE THEN
        RAISE EXCEPTION '% is not the name of a group', quote_nullable(name)
          USING HINT = 'use lower case letters, digits and underscores, at most 40';
      ELSIF lake = '' THEN
        RAISE EXCEPTION 'the name of the lake is empty' USING HINT = 'leave it out to mean the only one of the config';
      ELSIF name = ANY (headwater._known()) THEN
        RAISE EXCEPTION 'there is a group % already', quote_literal(name)
          USING HINT = format('SELECT headwater.add_table(..., group_name => %L)', name);
      END IF;
      IF lake IS NOT NULL THEN
        settings := settings || jsonb_build_object('lake', lake);
      END IF;
      RETURN headwater._request('create_group', name, NULL, jsonb_build_object('settings', settings));"""
_UNDECLARED_GROUP = """
      IF EXISTS (SELECT FROM headwater.declared_tables d WHERE d.group_name = home) THEN
        RAISE EXCEPTION 'group % is declared in headwater.yaml', quote_literal(home)
          USING HINT = 'what the file declares is ensured: take it out there';
      END IF;"""

REQUESTS = (
    Function("_allow", "roles text[]", "void", _ALLOW),
    Function("_named", "spelled text", "text[]", _NAMED),
    Function("_spelled", "parts text[]", "text", _SPELLED),
    Function("_known", "", "text[]", _KNOWN),
    Function("_group", "wanted text", "text", _GROUP),
    Function("_only_group", "", "text", _ONLY_GROUP),
    Function("_has", "home text, wanted text[]", "boolean", _HAS),
    Function("_declared", "home text, wanted text[]", "boolean", _DECLARED),
    Function("_holder", "wanted text[], wanted_group text", "text", _HOLDER),
    Function("_undeclared", "home text, wanted text[]", "void", _UNDECLARED),
    Function("_here", "", "text", _HERE),
    Function("_existing", "wanted text[]", "void", _EXISTING),
    Function("_only_keys", "what text, given jsonb, allowed text[]", "void", _ONLY_KEYS),
    Function("_request", "wish text, home text, wanted text[], given jsonb DEFAULT '{}'", "bigint", _REQUEST),
    _changing(
        "add_table",
        "source_table text, group_name text DEFAULT NULL, copy boolean DEFAULT true, lake_table text DEFAULT NULL,"
        " options jsonb DEFAULT '{}'",
        _ADD_TABLE,
        "wanted text[]; home text; entry jsonb;",
    ),
    _of_table("remove_table", _UNDECLARED_TABLE),
    _of_table("resync_table", _NOT_PAUSED),
    _of_table("pause_table"),
    _of_table("resume_table"),
    _changing(
        "move_table",
        "source_table text, to_group text, group_name text DEFAULT NULL",
        _MOVE_TABLE,
        "wanted text[]; home text;",
    ),
    _changing("create_group", "name text, lake text DEFAULT NULL, settings jsonb DEFAULT '{}'", _CREATE_GROUP),
    _of_group("drop_group", _UNDECLARED_GROUP),
    _of_group("enable_group"),
    _of_group("disable_group"),
)
