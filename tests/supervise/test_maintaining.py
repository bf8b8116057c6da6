"""What maintenance must leave alone, as far as the state knows it."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path

from headwater.change import TableName
from headwater.ducklake.opening import open_lake
from headwater.lake.maintenance import MaintenancePolicy
from headwater.lake.stream import WAL
from headwater.sink.ducklake.sink import DuckLakeSink
from headwater.state import State
from headwater.state.routes import Found, RouteId
from headwater.supervise.maintaining import keeping

EXPIRE = MaintenancePolicy(expire=timedelta(days=7))


def test_snapshots_from_which_routes_read_on_and_those_that_verify_reads_are_kept(
    database: str, tmp_path: Path
) -> None:
    route, elsewhere = RouteId("by_country"), RouteId("of another lake")
    with (
        closing(open_lake(f"sqlite:///{tmp_path}/lake.sqlite", str(tmp_path / "lake"))) as lake,
        closing(State.connect(database)) as state,
    ):
        state.migrate()
        sink = DuckLakeSink(lake, "1/db/g", WAL)
        state.ensure_route(route, lake.id(), 1)
        state.ensure_route(elsewhere, "another", 1)
        assert keeping(EXPIRE, state, sink).keep == frozenset()
        state.ensure_destinations(route.name, [Found(f"={each}", each, TableName("main", "t")) for each in ("a", "b")])
        state.claim(route, ["=a", "=b"], "me")
        state.note_seeded(route, 17, {"=a": 0, "=b": 0})
        state.note_seeded(elsewhere, 3, {})
        state.note_behind(route.name, {"=b": 11})
        assert keeping(EXPIRE, state, sink).keep == {11, 17}
        with state.pinned(lake.id(), 23), state.pinned("another", 5):
            assert keeping(EXPIRE, state, sink).keep == {11, 17, 23}
        assert keeping(EXPIRE, state, sink).keep == {11, 17}
        assert keeping(MaintenancePolicy(), state, sink) == MaintenancePolicy()
