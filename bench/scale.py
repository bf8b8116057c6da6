"""How much is done in a run of the bench."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FULL", "QUICK", "Scale"]


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done."""

    repeats: int
    backlog: int
    copied: int
    resumed: int  # rows of a table whose copy is killed
    tables: int
    small: int  # rows of the smaller of two tables that are updated; the other has ten times as many
    generated: int  # rows of a table that is made in the lake itself; the other has a hundredth of them
    transaction: int  # rows of the smaller of two transactions; the other has a hundred times as many
    upserted: int  # rows of the table that PyIceberg's upsert updates too, by rewriting it: its time grows with them
    commits: int  # to one table, one after the other
    freshness: float  # seconds that a steady writer goes on
    maintained: float  # the same, beside maintenance
    watched: float  # seconds of each part of a run, with and without open pages
    destinations: int  # of the larger of two routes; the other has a tenth of them
    seed: int = 100_000


FULL = Scale(
    repeats=3,
    backlog=1_400_000,
    copied=2_000_000,
    resumed=10_000_000,
    tables=200,
    small=1_000_000,
    generated=100_000_000,
    transaction=50_000,
    upserted=10_000_000,
    commits=500,
    freshness=600.0,
    maintained=120.0,
    watched=60.0,
    destinations=1_000,
)
QUICK = Scale(
    repeats=1,
    backlog=4_000,
    copied=4_000,
    resumed=400_000,
    tables=8,
    small=1_000,
    generated=20_000,
    transaction=100,
    upserted=500,
    commits=10,
    freshness=6.0,
    maintained=6.0,
    watched=6.0,
    destinations=40,
    seed=2_000,
)
