"""Copies that are broken off: before they commit, with only some of their ranges done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

from headwater import flow
from headwater.errors import Unreachable
from headwater.lake.stream import WAL
from headwater.sink.addresses import group_lake
from headwater.state.copies import KeptRange
from headwater.supervise.lakes import source_name
from tests.interrupted import Act, Interrupted
from tests.mirror import Mirror

__all__ = ["beside", "break_off"]


@contextmanager
def beside(mirror: Mirror, act: Act = lambda: None) -> Iterator[flow.Mirroring]:
    """What a copy's thread has: a sink of its own. Its ranges are short; this happens before it commits."""
    group = mirror.m.state.group("g")
    assert group is not None
    with closing(group_lake(mirror.config, {}, "g").open(source_name(group.source_id, "g"), WAL)) as opened:
        sink: Any = Interrupted(opened, act)
        yield replace(mirror.m, sink=sink, range_pages=1)


def break_off(mirror: Mirror, done: Callable[[KeptRange], bool]) -> bool:
    """Break off a copy in which these ranges are done; whether there was one to break off."""

    def lost() -> None:
        raise Unreachable("the lake is away", hint="it comes back")

    with beside(mirror, lost) as m:
        try:
            copied = flow.copy(m)
        except Unreachable:
            copied = None
    if copied is not None:
        assert not copied
        return False
    with mirror.m.state.transaction() as connection:
        for oid, kept in mirror.m.state.kept_copies("g").items():
            for each in kept.ranges:
                if not done(each):
                    connection.execute(
                        "DELETE FROM headwater.copied_ranges WHERE group_name = 'g' AND source_oid = %s"
                        " AND part_oid = %s AND first_page = %s",
                        (oid, each.oid, each.first_page),
                    )
    return True
