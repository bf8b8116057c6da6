"""`headwater.wait_for`: waits in SQL until the mirror contains a position.

A function cannot commit the fence that would make others wait for it, so it looks by itself, and announces the position
through advisory locks, which others see at once: capture then records its own position soon, and delivery does not wait
for its interval. To write it anywhere would take a transaction id, and a first copy waits for every transaction that
has one.
"""

from __future__ import annotations

from headwater.state.functions import ADMIN, READER, Function, text_array
from headwater.state.lock import CLASS

__all__ = ["AWAITED", "WAITING"]

_ANYONE = f"{CLASS}, hashtext('awaited')"  # the lock that is shared by all who wait
_MARK = 0x57  # 'W': the first byte of the lock that has the position in its other seven

# The furthest position that is waited for, null if there is none. Whoever asks comes to all locks of the server only
# if there is such a wait, or another asks at the same moment.
AWAITED = f"""
    CASE WHEN NOT pg_try_advisory_xact_lock({_ANYONE}) THEN (
      SELECT max('0/0'::pg_lsn + (((l.classid::bigint & 16777215) << 32) + l.objid::bigint)) FROM pg_locks l
      WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.classid::bigint >> 24 = {_MARK}
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())) END
"""

_LAGGING = """
    BEGIN
      RETURN EXISTS (
        SELECT FROM unnest(homes) AS home(name) LEFT JOIN headwater.groups g ON g.name = home.name
        WHERE g.name IS NULL OR EXISTS (
          SELECT FROM headwater.tables t WHERE t.group_name = g.name AND t.state NOT IN ('PAUSED', 'REMOVED')
          AND NOT coalesce(t.position >= target AND t.resync IS NULL, false)
          -- A table without changes keeps its position; with a log that is there, and nothing staged, so is its mirror.
          AND NOT (coalesce(t.state IN ('CATCHUP', 'STREAMING') AND g.captured_lsn >= target, false) AND NOT EXISTS (
            SELECT FROM headwater.segments s JOIN headwater.segment_parts p ON p.segment_id = s.id
            JOIN headwater.relations r ON r.id = p.relation_id
            WHERE s.group_name = g.name AND r.oid = t.source_oid AND s.last_lsn >= t.position
            AND p.last_lsn >= t.position AND p.first_lsn < target
          ) AND NOT EXISTS (
            SELECT FROM headwater.relations r WHERE r.group_name = g.name AND r.oid = t.source_oid
            AND r.seen <> 'rows' AND r.lsn >= t.position AND r.lsn < target))));
    END
"""
# A position that is still to come would hurry them for nothing.
_HURRY = f"""
    BEGIN
      PERFORM pg_advisory_xact_lock_shared({_ANYONE});
      PERFORM pg_advisory_xact_lock_shared(
        ({_MARK}::bigint << 56) + (least(target, pg_current_wal_insert_lsn()) - '0/0'::pg_lsn)::bigint);
    END
"""
# What is written and not flushed is no commit, or one that is flushed within three times that delay. The rest, such as
# what pruning a page writes, an idle server may keep to itself for long, and capture does not see it before.
_COMMITTED = """
    DECLARE
      written pg_lsn := pg_current_wal_insert_lsn();
      deadline timestamptz := clock_timestamp() + 3 * current_setting('wal_writer_delay')::interval;
    BEGIN
      WHILE pg_current_wal_flush_lsn() < written AND clock_timestamp() < deadline LOOP
        PERFORM pg_sleep(0.01);
      END LOOP;
      RETURN least(written, pg_current_wal_flush_lsn());
    END
"""
_OVER = "HW001"
_WAIT_FOR = f"""
    DECLARE
      deadline timestamptz := clock_timestamp() + coalesce(timeout, '30s');
      target pg_lsn := lsn;
      homes text[];
      here boolean;
      contained boolean := true;
      offset_in_page int;
    BEGIN
      PERFORM headwater._allow({text_array((READER, ADMIN))});
      IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'a transaction that is % does not see what others commit meanwhile',
          upper(current_setting('transaction_isolation')) USING HINT = 'call headwater.wait_for outside of it';
      END IF;
      homes := headwater._awaited_groups(group_name);
      here := coalesce((SELECT bool_and(g.source_id = headwater._here()) FROM headwater.groups g
                        WHERE g.name = ANY (homes)), false);
      IF target IS NULL THEN
        IF NOT here THEN
          RAISE EXCEPTION 'the position of the source is not known in this database'
            USING HINT = 'ask the source for pg_current_wal_flush_lsn(), and pass that';
        END IF;
        target := headwater._committed();
      END IF;
      -- Right behind a page's header nothing is written yet: an idle server stays before it.
      offset_in_page := (target - '0/0'::pg_lsn) % current_setting('wal_block_size')::int;
      IF offset_in_page IN (24, 40) THEN
        target := target - offset_in_page;
      END IF;
      BEGIN
        IF here THEN
          PERFORM headwater._hurry(target);
        END IF;
        WHILE headwater._lagging(homes, target) LOOP
          contained := clock_timestamp() < deadline;
          EXIT WHEN NOT contained;
          PERFORM pg_sleep(0.05);
        END LOOP;
        RAISE SQLSTATE '{_OVER}'; -- the locks end with this block, not with the caller's transaction
      EXCEPTION WHEN SQLSTATE '{_OVER}' THEN
        RETURN contained;
      END;
    END
"""
_AWAITED_GROUPS = """
    DECLARE
      homes text[];
    BEGIN
      IF wanted IS NULL THEN
        homes := ARRAY(SELECT g.name FROM headwater.groups g UNION SELECT a.name FROM headwater.added_groups a
                       UNION SELECT d.group_name FROM headwater.declared_tables d
                       EXCEPT SELECT o.name FROM headwater.disabled_groups o);
        IF cardinality(homes) = 0 THEN
          RAISE EXCEPTION 'there is no group to wait for' USING HINT = '`headwater run` makes those of its config';
        END IF;
        RETURN homes;
      ELSIF EXISTS (SELECT FROM headwater.disabled_groups o WHERE o.name = wanted) THEN
        RAISE EXCEPTION 'group % is disabled, and stays where it is', quote_literal(wanted)
          USING HINT = format('SELECT headwater.enable_group(%L)', wanted);
      END IF;
      RETURN ARRAY[headwater._group(wanted)];
    END
"""

WAITING = (
    Function("_awaited_groups", "wanted text", "text[]", _AWAITED_GROUPS),
    Function("_lagging", "homes text[], target pg_lsn", "boolean", _LAGGING),
    Function("_hurry", "target pg_lsn", "void", _HURRY),
    Function("_committed", "", "pg_lsn", _COMMITTED),
    Function(
        "wait_for",
        "lsn pg_lsn DEFAULT NULL, timeout interval DEFAULT '30s', group_name text DEFAULT NULL",
        "boolean",
        _WAIT_FOR,
        (READER, ADMIN),
    ),
)
