"""From an LSN of the source to the snapshots of the lake that show it."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyiceberg.catalog import load_catalog
from tests.mirror import IcebergMirror, Mirror

from headwater.change import Lsn
from headwater.commands.cli import cli
from headwater.config import Config
from headwater.query import query
from headwater.sink.ducklake.moments import newest_at
from headwater.sink.iceberg.moments import together
from headwater.sink.iceberg.reader import load_iceberg
from headwater.sink.iceberg.standing import Stretch


def asked(mirror: Mirror, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["-c", str(mirror.file), "status", "--lsn", *arguments])


def tables_at(mirror: Mirror, lsn: str) -> dict[str, dict[str, Any]]:
    done = asked(mirror, lsn, "--json")
    assert done.exit_code == 0, done.output
    return {each["table"]: each for each in json.loads(done.stdout)["tables"]}


def two_moments(mirror: Mirror) -> tuple[str, str]:
    """A mirror of a busy table and a quiet one, at two positions."""
    mirror.execute(
        "CREATE TABLE busy (id int PRIMARY KEY)",
        "CREATE TABLE quiet (id int PRIMARY KEY)",
        "INSERT INTO quiet VALUES (1)",
    )
    mirror.start()
    mirror.execute("INSERT INTO busy VALUES (1)")
    first = mirror.sync()[-1].position
    mirror.execute("INSERT INTO busy VALUES (2)")
    return str(first), str(mirror.sync()[-1].position)


def test_a_ducklake_shows_all_tables_at_an_lsn_in_one_snapshot(mirror: Mirror) -> None:
    first, second = two_moments(mirror)
    before, after = tables_at(mirror, first), tables_at(mirror, second)
    assert {each["snapshot_id"] for each in before.values()} == {after["public.busy"]["snapshot_id"] - 1}
    config = Config.load(mirror.file, {})
    for there, rows in ((before, [(1,)]), (after, [(1,), (2,)])):
        assert sorted(query(config, there["public.busy"]["read_by"]["DuckDB"], {}).rows) == rows


def test_an_iceberg_lake_has_a_snapshot_of_each_table_for_an_lsn(iceberg_mirror: IcebergMirror) -> None:
    first, second = two_moments(iceberg_mirror)
    before, after = tables_at(iceberg_mirror, first), tables_at(iceberg_mirror, second)
    assert before["public.busy"]["position"] == first
    assert before["public.quiet"]["snapshot_id"] == after["public.quiet"]["snapshot_id"]
    properties = iceberg_mirror.config.lakes["main"].properties  # type: ignore[union-attr]
    with closing(load_catalog("default", **properties)) as catalog, iceberg_mirror.attached() as con:
        load_iceberg(con)
        for there, rows in ((before, [(1,)]), (after, [(1,), (2,)])):
            lines = there["public.busy"]["read_by"]
            assert sorted(con.sql(lines["DuckDB"]).fetchall()) == rows
            scan = eval(lines["PyIceberg"], {"catalog": catalog})
            assert sorted(scan.to_arrow()["id"].to_pylist()) == [id_ for (id_,) in rows]


def test_the_snapshots_of_an_iceberg_table_name_the_newest_transaction_in_them(iceberg_mirror: IcebergMirror) -> None:
    _, position = two_moments(iceberg_mirror)
    properties = iceberg_mirror.config.lakes["main"].properties  # type: ignore[union-attr]
    with closing(load_catalog("default", **properties)) as catalog:
        copied, *_, newest = catalog.load_table(("public", "busy")).metadata.snapshots
    said = newest.summary.additional_properties if newest.summary else {}
    assert Lsn.parse(said["headwater.commit-lsn"]) < Lsn.parse(said["headwater.position"])
    assert said["headwater.position"] == position
    assert_is_the_newest_commit(iceberg_mirror, said["headwater.commit-lsn"], said["headwater.commit-ts"])
    assert "headwater.commit-lsn" not in (copied.summary.additional_properties if copied.summary else {})


def test_the_lines_of_the_readme_read_an_iceberg_lake(iceberg_mirror: IcebergMirror) -> None:
    _, position = two_moments(iceberg_mirror)
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    (lines,) = re.findall(r"```python\n(from pyiceberg.*?)```", readme, re.DOTALL)
    lines = lines.replace("/srv/data", str(iceberg_mirror.folder)).replace("public.orders", "public.busy")
    *before, scan, shown = lines.strip().splitlines()
    names: dict[str, Any] = {}
    exec("\n".join(before), names)
    with closing(names["lake"]):
        assert sorted(eval(scan, names)["id"].to_pylist()) == [1, 2]
        assert eval(shown, names) == position


def test_a_commit_to_a_ducklake_names_the_newest_transaction_in_it(mirror: Mirror) -> None:
    two_moments(mirror)
    ((extra,),) = mirror.ask("SELECT commit_extra_info FROM lake.snapshots() ORDER BY snapshot_id DESC LIMIT 1")
    said = json.loads(extra)
    assert Lsn.parse(said["commit_lsn"]) < Lsn.parse(said["lsn"])
    assert_is_the_newest_commit(mirror, said["commit_lsn"], said["commit_ts"])


def assert_is_the_newest_commit(mirror: Mirror, lsn: str, ts: str) -> None:
    ((written, now),) = mirror.m.state.query("SELECT max(last_lsn), max(last_commit_at) FROM headwater.segments")
    assert (Lsn.parse(lsn), ts) == (written, now.isoformat())


def test_a_delivery_that_ends_within_a_segment_names_its_own_last_transaction(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id int PRIMARY KEY)")
    mirror.start()
    mirror.stop_capture()
    mirror.transaction("INSERT INTO t VALUES (1)")
    ((cut,),) = mirror.rows_of("SELECT pg_current_wal_insert_lsn()::text")
    mirror.transaction("INSERT INTO t VALUES (2)")
    mirror.capture()
    mirror.captured()
    log, begin = mirror.m.log, mirror.m.log.begin()
    whole, part = log.read(begin).newest, log.read(begin, Lsn.parse(cut)).newest
    assert whole is not None
    assert part is not None
    assert part.lsn < Lsn.parse(cut) <= whole.lsn
    assert part.ts < whole.ts


def test_an_lsn_that_the_lake_has_not_reached_is_an_error(mirror: Mirror) -> None:
    two_moments(mirror)
    done = asked(mirror, "FF/0")
    assert done.exit_code == 1
    assert "table public.busy: the lake has not reached FF/0 yet, it is at " in done.output


def test_an_lsn_from_before_the_first_copy_has_no_snapshot(mirror: Mirror) -> None:
    two_moments(mirror)
    done = asked(mirror, "0/1")
    assert done.exit_code == 1
    assert "table public.busy: no snapshot is as old: they are expired, or the table was copied later" in done.output


def test_an_lsn_whose_snapshots_are_expired_is_an_error_and_the_present_one_is_none(mirror: Mirror) -> None:
    first, second = two_moments(mirror)
    mirror.ask("CALL ducklake_expire_snapshots('lake', older_than => now() + INTERVAL 1 DAY)")
    assert "no snapshot is as old" in asked(mirror, first).output
    assert tables_at(mirror, second).keys() == {"public.busy", "public.quiet"}


def test_the_present_lsn_of_an_iceberg_table_outlives_the_snapshots_that_others_expire(
    iceberg_mirror: IcebergMirror,
) -> None:
    first, second = two_moments(iceberg_mirror)
    properties = iceberg_mirror.config.lakes["main"].properties  # type: ignore[union-attr]
    with closing(load_catalog("default", **properties)) as catalog:
        table = catalog.load_table(("public", "busy"))
        ours = [each.snapshot_id for each in table.metadata.snapshots]
        table.append(table.scan(limit=0).to_arrow())
        table.maintenance.expire_snapshots().by_ids(ours).commit()
        (left,) = catalog.load_table(("public", "busy")).metadata.snapshots
    assert "table public.busy: no snapshot is as old" in asked(iceberg_mirror, first).output
    assert tables_at(iceberg_mirror, second)["public.busy"]["snapshot_id"] == left.snapshot_id


def test_people_get_a_table_and_the_lines_to_read_it(mirror: Mirror) -> None:
    _, second = two_moments(mirror)
    shown = asked(mirror, second).output
    assert "table         lake  snapshot  shows" in shown
    assert "Read them in DuckDB:\n  FROM public.busy AT (VERSION => " in shown


@pytest.mark.parametrize("arguments", [["nonsense"], ["0/1", "--watch"], ["0/1", "--check"]])
def test_a_bad_lsn_and_options_that_make_no_sense_with_it_are_usage_errors(
    mirror: Mirror, arguments: list[str]
) -> None:
    mirror.configure("public.t")
    assert asked(mirror, *arguments).exit_code == 2


def test_before_anything_has_run_there_is_nothing_to_show(mirror: Mirror) -> None:
    mirror.configure("public.t")
    done = asked(mirror, "0/1")
    assert done.exit_code == 2
    assert "nothing has run with this config yet" in done.output


def stretch(snapshot: int, first: int, last: int) -> Stretch[Lsn]:
    return Stretch(snapshot, Lsn(first), Lsn(last))


BUSY = [stretch(13, 300, 300), stretch(12, 200, 200), stretch(11, 100, 100)]
QUIET = [stretch(22, 300, 300), stretch(21, 100, 200)]
LATE = [stretch(34, 300, 300), stretch(33, 200, 200), stretch(32, 150, 150), stretch(31, 100, 100)]  # it was behind
COPIED = [stretch(42, 300, 300), stretch(41, 200, 200)]


@pytest.mark.parametrize(
    ("tables", "at", "shown"),
    [
        ([BUSY, QUIET], 300, 300),
        ([BUSY, QUIET], 250, 200),
        ([BUSY, QUIET], 199, 100),
        ([BUSY, LATE], 199, 100),  # not 150, at which the other table was never
        ([QUIET, LATE], 199, 150),
        ([BUSY, COPIED], 150, 100),  # a table that was copied later has no part in it
        ([], 150, 150),
    ],
)
def test_iceberg_snapshots_belong_together_at_a_position_that_all_tables_have_shown(
    tables: list[list[Stretch[Lsn]]], at: int, shown: int
) -> None:
    assert together(tables, Lsn(at)) == Lsn(shown)


AB = [(1, None), (2, Lsn(100)), (3, Lsn(200)), (4, None), (5, Lsn(150)), (6, Lsn(200)), (7, None)]


@pytest.mark.parametrize(
    ("at", "found"),
    [
        (99, None),
        (100, (2, Lsn(100))),
        (150, (2, Lsn(100))),  # not 5, in which one table comes up to another that is further
        (200, (7, Lsn(200))),  # what others did afterwards counts with it
    ],
)
def test_the_newest_snapshot_at_an_lsn_is_before_the_first_that_goes_past_it(
    at: int, found: tuple[int, Lsn] | None
) -> None:
    assert newest_at(AB, (6, Lsn(200)), Lsn(at)) == found


def test_what_is_shown_by_a_snapshot_of_others_is_not_known_if_the_one_before_it_is_expired() -> None:
    kept = [(10, Lsn(100)), (501, None), (502, Lsn(300)), (503, None)]  # 500 was at 200
    assert newest_at(kept, (502, Lsn(300)), Lsn(150)) == (10, Lsn(100))
    assert newest_at(kept, (502, Lsn(300)), Lsn(250)) == (10, Lsn(100))
    assert newest_at(kept, (502, Lsn(300)), Lsn(300)) == (503, Lsn(300))


def test_when_all_snapshots_of_ours_are_expired_only_the_present_position_is_known() -> None:
    compacted = [(9, None)]
    assert newest_at(compacted, (8, Lsn(200)), Lsn(200)) == (9, Lsn(200))
    assert newest_at(compacted, (8, Lsn(200)), Lsn(199)) is None
