"""The schema `headwater`, version by version. A released migration is never edited; a change is a new entry."""

from __future__ import annotations

from headwater.errors import OperatorMustAct
from headwater.postgres.connect import Connection
from headwater.state import interface
from headwater.state.lock import CLASS

__all__ = ["MIGRATIONS", "check_version", "migrate"]

MIGRATIONS = (
    """
    CREATE TABLE headwater.groups (
        name text PRIMARY KEY,
        source_id text NOT NULL,
        slot text NOT NULL,
        publication text NOT NULL,
        slot_requested boolean NOT NULL DEFAULT false,
        captured_lsn pg_lsn,
        captured_at timestamptz, -- when that was recorded, by the clock of the state's server
        captured_commit_at timestamptz, -- of the newest commit, by the source's clock; null: no change was staged
        confirmed_lsn pg_lsn,
        delivered_lsn pg_lsn,
        trimmed_lsn pg_lsn,
        lost_lsn pg_lsn, -- segments that end here or before were lost: once every table is past it, the log begins here
        ddl_marks text, -- what marks the event triggers that report schema changes; null: they are not all there
        ddl_lsn pg_lsn, -- from here on they have reported every one
        ddl_doubted boolean NOT NULL DEFAULT false, -- they were trusted, and may have missed some since
        watched_lsn pg_lsn, -- what the catalog shows without data (columns, partitions) is known up to here
        snapshot_id bigint,
        delivered_at timestamptz,
        capture_error text,
        delivery_error text,
        log_path text, -- the log and the lake that the group uses, and their ids: others are refused
        log_id text,
        lake_url text,
        lake_id text,
        updated_at timestamptz NOT NULL DEFAULT now()
    );
    CREATE TABLE headwater.tables (
        group_name text NOT NULL REFERENCES headwater.groups ON DELETE CASCADE,
        source_oid bigint NOT NULL,
        namespace text NOT NULL,
        name text NOT NULL,
        lake_schema text NOT NULL,
        lake_table text NOT NULL,
        state text NOT NULL DEFAULT 'PENDING'
            CHECK (state IN ('PENDING', 'SNAPSHOT', 'CATCHUP', 'STREAMING', 'ERRORED', 'PAUSED')),
        position pg_lsn,
        copy_lsn pg_lsn,
        copied_rows bigint NOT NULL DEFAULT 0,
        copy_total bigint,
        inserted bigint NOT NULL DEFAULT 0,
        updated bigint NOT NULL DEFAULT 0,
        deleted bigint NOT NULL DEFAULT 0,
        error text,
        failures integer NOT NULL DEFAULT 0,
        retry_at timestamptz,
        configured_schema text NOT NULL, -- as the config calls it: the source may have renamed it since
        configured_table text NOT NULL,
        options jsonb NOT NULL DEFAULT '{}',
        quarantined bigint NOT NULL DEFAULT 0,
        resync text, -- why the table is to be copied again; null: it is not
        resync_lsn pg_lsn NOT NULL DEFAULT '0/0', -- a copy that shows an earlier position does not do
        partitions jsonb, -- of a partitioned table: what was below it at the last look
        published text, -- what marks its place in the publication, as `run` left it
        replaces bigint[] NOT NULL DEFAULT '{}', -- OIDs of tables whose mirrors its next copy takes the place of
        dropped_lsn pg_lsn, -- the source had no such table any more at this position; null: it has
        updated_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (group_name, source_oid)
    );
    CREATE TABLE headwater.relations (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        group_name text NOT NULL REFERENCES headwater.groups ON DELETE CASCADE,
        oid bigint NOT NULL,
        namespace text NOT NULL,
        name text NOT NULL,
        identity text NOT NULL,
        columns jsonb NOT NULL,
        lsn pg_lsn NOT NULL, -- of the first commit that has this version, or where a look at the catalog found it
        seen text NOT NULL CHECK (seen IN ('rows', 'ddl', 'catalog')), -- a row's message, an event trigger, a look
        created_at timestamptz NOT NULL DEFAULT now()
    );
    CREATE INDEX ON headwater.relations (group_name, oid, lsn, id);
    -- A transaction that was streamed while in progress did not know its commit: its segments' rows have none, and
    -- their reader takes it from here (first_lsn = last_lsn, streamed_ts, streamed_xid) and leaves out the aborted
    -- subtransactions.
    CREATE TABLE headwater.segments (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        group_name text NOT NULL REFERENCES headwater.groups ON DELETE CASCADE,
        path text NOT NULL,
        first_lsn pg_lsn NOT NULL,
        last_lsn pg_lsn NOT NULL,
        end_lsn pg_lsn NOT NULL,
        rows bigint NOT NULL,
        bytes bigint NOT NULL,
        first_commit_at timestamptz NOT NULL, -- by the source's clock, as the next
        last_commit_at timestamptz NOT NULL,
        streamed_ts timestamptz,
        streamed_xid bigint,
        aborted bigint[] NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL DEFAULT now(),
        UNIQUE (group_name, path),
        CHECK (first_lsn <= last_lsn AND last_lsn < end_lsn)
    );
    CREATE INDEX ON headwater.segments (group_name, last_lsn, id);
    CREATE TABLE headwater.segment_parts (
        segment_id bigint NOT NULL REFERENCES headwater.segments ON DELETE CASCADE,
        relation_id bigint NOT NULL REFERENCES headwater.relations,
        rows bigint NOT NULL,
        bytes bigint NOT NULL,
        ops text NOT NULL,
        first_lsn pg_lsn NOT NULL,
        last_lsn pg_lsn NOT NULL,
        PRIMARY KEY (segment_id, relation_id)
    );
    CREATE TABLE headwater.fences (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        group_name text NOT NULL REFERENCES headwater.groups ON DELETE CASCADE,
        lsn pg_lsn NOT NULL,
        reached_snapshot bigint,
        reached_lsn pg_lsn,
        created_at timestamptz NOT NULL DEFAULT now(),
        expires_at timestamptz NOT NULL
    );
    CREATE INDEX ON headwater.fences (group_name, lsn) WHERE reached_snapshot IS NULL;
    CREATE TABLE headwater.processes (
        group_name text NOT NULL REFERENCES headwater.groups ON DELETE CASCADE,
        part text NOT NULL CHECK (part IN ('capture', 'delivery')),
        host text NOT NULL,
        pid bigint NOT NULL,
        lock text NOT NULL, -- the advisory lock that it holds while it runs,
        session integer NOT NULL, -- and the backend that holds it
        started_at timestamptz NOT NULL DEFAULT now(),
        stopped_at timestamptz, -- null: it runs, or it was killed
        PRIMARY KEY (group_name, part)
    );
    """,
    """
    CREATE TABLE headwater.routes (
        name text NOT NULL,
        instance text NOT NULL, -- which of those that share the route; each has a position of its own
        source_id text NOT NULL,
        source_table bigint NOT NULL,
        position bigint, -- destinations are complete up to here, except those that are behind; null: no poll yet
        polling boolean NOT NULL DEFAULT false,
        polled_at timestamptz,
        unknown_rows bigint NOT NULL DEFAULT 0,
        null_rows bigint NOT NULL DEFAULT 0,
        error text,
        updated_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (name, instance)
    );
    CREATE TABLE headwater.destinations (
        route text NOT NULL,
        id text NOT NULL, -- '=' and the canonical routing value, or '*' for the default
        instance text, -- that it belongs to; null: none has had it yet
        lake text NOT NULL,
        schema text NOT NULL,
        table_name text NOT NULL,
        state text NOT NULL DEFAULT 'PENDING' CHECK (state IN ('PENDING', 'ACTIVE', 'ERRORED', 'PAUSED')),
        behind bigint, -- complete up to here, if not up to the position of its instance
        landed bigint, -- a copy of the position in its own lake
        reseed text, -- why it is to be seeded; null: it is not
        seeded bigint NOT NULL DEFAULT 0,
        inserted bigint NOT NULL DEFAULT 0,
        updated bigint NOT NULL DEFAULT 0,
        deleted bigint NOT NULL DEFAULT 0,
        waiting_rows bigint NOT NULL DEFAULT 0,
        error text,
        failures integer NOT NULL DEFAULT 0,
        retry_at timestamptz,
        owner text, -- the lock that the process holds which delivers to it
        delivered_at timestamptz,
        updated_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (route, id)
    );
    CREATE TABLE headwater.route_attempts (
        attempt text PRIMARY KEY,
        route text NOT NULL,
        instance text NOT NULL,
        begun_at timestamptz NOT NULL DEFAULT now()
    );
    """,
    """
    CREATE TABLE headwater.pins ( -- snapshots that do not expire, since they are being read
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        lake_id text NOT NULL,
        snapshot_id bigint NOT NULL,
        expires_at timestamptz NOT NULL -- of a reader that was killed, too
    );
    CREATE TABLE headwater.maintained ( -- what maintenance has last done to a table of a group's lake
        group_name text NOT NULL REFERENCES headwater.groups ON DELETE CASCADE,
        lake_schema text NOT NULL,
        lake_table text NOT NULL,
        done jsonb NOT NULL,
        done_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (group_name, lake_schema, lake_table)
    );
    """,
    """
    ALTER TABLE headwater.tables DROP CONSTRAINT tables_state_check;
    UPDATE headwater.tables SET state = 'REMOVED' WHERE state = 'PAUSED';
    ALTER TABLE headwater.tables ADD CONSTRAINT tables_state_check
        CHECK (state IN ('PENDING', 'SNAPSHOT', 'CATCHUP', 'STREAMING', 'ERRORED', 'PAUSED', 'REMOVED'));
    CREATE TABLE headwater.copies (
        group_name text NOT NULL,
        source_oid bigint NOT NULL,
        definition text NOT NULL,
        note bytea NOT NULL,
        begun_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (group_name, source_oid),
        FOREIGN KEY (group_name, source_oid) REFERENCES headwater.tables ON DELETE CASCADE
    );
    CREATE TABLE headwater.copied_ranges (
        group_name text NOT NULL,
        source_oid bigint NOT NULL,
        part_oid bigint NOT NULL,
        first_page bigint NOT NULL,
        end_page bigint,
        lsn pg_lsn NOT NULL,
        rows bigint NOT NULL,
        attempt text NOT NULL,
        reports bytea NOT NULL,
        PRIMARY KEY (group_name, source_oid, part_oid, first_page),
        FOREIGN KEY (group_name, source_oid) REFERENCES headwater.copies ON DELETE CASCADE
    );
    """,
    """
    CREATE TABLE headwater.requests ( -- what operators asked for, by command or in SQL
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        verb text NOT NULL CHECK (verb IN ('add_table', 'remove_table', 'resync_table', 'pause_table', 'resume_table',
            'move_table', 'create_group', 'drop_group', 'enable_group', 'disable_group')),
        group_name text NOT NULL, -- neither group nor table need be there yet
        table_name text,
        arguments jsonb NOT NULL DEFAULT '{}',
        requested_by text NOT NULL DEFAULT session_user,
        requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        handled_at timestamptz, -- null: it waits
        failed boolean NOT NULL DEFAULT false,
        outcome text
    );
    CREATE INDEX ON headwater.requests (id) WHERE handled_at IS NULL;
    CREATE TABLE headwater.added_tables ( -- beside those of the config
        group_name text NOT NULL,
        table_name text NOT NULL,
        entry jsonb NOT NULL, -- what the config would have under `tables:`
        copy boolean NOT NULL,
        added_by text NOT NULL DEFAULT session_user,
        added_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (group_name, table_name)
    );
    CREATE TABLE headwater.added_groups (
        name text PRIMARY KEY,
        settings jsonb NOT NULL, -- what the config would have under the group's name, without its tables
        added_by text NOT NULL DEFAULT session_user,
        added_at timestamptz NOT NULL DEFAULT now()
    );
    CREATE TABLE headwater.disabled_groups (
        name text PRIMARY KEY,
        disabled_at timestamptz NOT NULL DEFAULT now()
    );
    CREATE TABLE headwater.declared_tables ( -- what the config has, as the last run saw it
        group_name text NOT NULL,
        table_name text NOT NULL,
        PRIMARY KEY (group_name, table_name)
    );
    CREATE TABLE headwater.interface (stamp text NOT NULL); -- which functions, views and grants there are
    """,
    """
    ALTER TABLE headwater.groups
        ADD COLUMN timeline text, -- of the source, as the log was last read from it, with those before it
        -- It was promoted here, and the lake may have what the old timeline had beyond; null: that was looked at.
        ADD COLUMN forked_lsn pg_lsn;
    """,
    """
    ALTER TABLE headwater.segments ADD COLUMN file_bytes bigint; -- on disk; `bytes` is what a reader has in memory
    UPDATE headwater.segments SET file_bytes = bytes;
    ALTER TABLE headwater.segments ALTER COLUMN file_bytes SET NOT NULL;
    """,
    """
    CREATE TABLE headwater.deliveries ( -- that changed something, for a while
        id bigserial PRIMARY KEY,
        group_name text NOT NULL REFERENCES headwater.groups ON DELETE CASCADE,
        at timestamptz NOT NULL DEFAULT now(),
        position pg_lsn NOT NULL,
        snapshot_id bigint NOT NULL,
        changes bigint NOT NULL, -- rows of the log that it read
        tables integer NOT NULL, -- that it changed
        inserted bigint NOT NULL,
        updated bigint NOT NULL,
        deleted bigint NOT NULL,
        bytes bigint NOT NULL, -- of the data files that it wrote
        lag_seconds float8 NOT NULL, -- at the commit, the age of the oldest source commit that it brought
        phase_wait float8 NOT NULL, -- seconds, like the next
        phase_fold float8 NOT NULL,
        phase_locate float8 NOT NULL,
        phase_write float8 NOT NULL,
        phase_commit float8 NOT NULL,
        source_oids bigint[] NOT NULL -- of the tables that it changed
    );
    CREATE INDEX ON headwater.deliveries (group_name, id);
    """,
    """
    CREATE TABLE headwater.removals ( -- partitions that lost their rows, which the mirror still has
        id bigserial PRIMARY KEY,
        group_name text NOT NULL,
        source_oid bigint NOT NULL,
        reason text NOT NULL,
        conditions jsonb NOT NULL, -- which rows: those that meet them all
        lsn pg_lsn, -- where the source has no such row; null: that is still to be found
        FOREIGN KEY (group_name, source_oid) REFERENCES headwater.tables ON DELETE CASCADE
    );
    ALTER TABLE headwater.tables ADD COLUMN removed_lsn pg_lsn; -- where rows of a partition were last removed
    """,
    """
    CREATE TABLE headwater.servers ( -- that serve the page, as long as they hold the lock
        lock text PRIMARY KEY,
        address text NOT NULL,
        log_path text NOT NULL, -- of the config: other services may share the state
        started_at timestamptz NOT NULL DEFAULT now()
    );
    """,
    """
    ALTER TABLE headwater.tables ADD COLUMN error_kind text; -- of an ERRORED table
    UPDATE headwater.tables SET error_kind = 'configuration' WHERE state = 'ERRORED';
    """,
    """
    ALTER TABLE headwater.groups
        ADD COLUMN captured_changes bigint NOT NULL DEFAULT 0; -- rows that the log has got, in total
    """,
    """
    ALTER TABLE headwater.copies
        ADD COLUMN attempt text; -- in the names of the files that are being written; null: none may be noted
    """,
    """
    ALTER TABLE headwater.requests
        ADD COLUMN begun jsonb; -- what was so before a service began with it; null: nothing has been done for it yet
    """,
    """
    DELETE FROM headwater.declared_tables; -- the next start notes them anew
    ALTER TABLE headwater.declared_tables
        ADD COLUMN log_path text NOT NULL; -- of the config: other services may share the state
    """,
)


def migrate(connection: Connection) -> None:
    """Bring the schema, and what people see of it in SQL, to this version; refuse one newer than this program knows."""
    with connection.transaction():
        # Without the lock another process might create the schema after we have seen that there is none.
        connection.execute("SELECT pg_advisory_xact_lock(%s, 0)", (CLASS,))
        have = _version(connection)
        check_version(have)
        for number, script in enumerate(MIGRATIONS[have:], start=have + 1):
            connection.execute(script)
            connection.execute("INSERT INTO headwater.migrations (version) VALUES (%s)", (number,))
        interface.apply(connection)


def check_version(have: int) -> None:
    """Refuse a schema that a newer program has created."""
    if have > len(MIGRATIONS):
        raise OperatorMustAct(
            f"the schema 'headwater' is of version {have}, this program knows {len(MIGRATIONS)}",
            hint="run the newer headwater that created it",
        )


def _version(connection: Connection) -> int:
    if connection.execute("SELECT to_regclass('headwater.migrations')").fetchone() == (None,):
        if connection.execute("SELECT to_regnamespace('headwater')").fetchone() == (None,):
            connection.execute("CREATE SCHEMA headwater")  # IF NOT EXISTS needs the right to create one anyway
        connection.execute(
            "CREATE TABLE headwater.migrations"
            " (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())"
        )
    row = connection.execute("SELECT coalesce(max(version), 0) FROM headwater.migrations").fetchone()
    assert row is not None
    return int(row[0])
