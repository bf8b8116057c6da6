"""A commit of ours, as people see it in the lake's list of snapshots."""

from __future__ import annotations

import json
from dataclasses import replace

from headwater.change import NewestCommit
from headwater.ducklake.lake import Lake
from headwater.ducklake.model import PlannedCommit
from headwater.sink.ducklake.quarantine import AUTHOR

__all__ = ["land", "signed"]


def land(lake: Lake, commit: PlannedCommit, newest: NewestCommit | None = None) -> int:
    """Make the snapshot; return its id."""
    return lake.commit(signed(commit, newest))


def signed(commit: PlannedCommit, newest: NewestCommit | None = None) -> PlannedCommit:
    """The commit with its message and extra info: they name the group or route, the position, the newest commit."""
    position = max(advance.new for advance in commit.positions.values())
    group = commit.source.rsplit("/", 1)[-1]
    extra = {position.label: str(position), "source": commit.source}
    if newest is not None:
        extra |= {"commit_lsn": str(newest.lsn), "commit_ts": newest.ts.isoformat()}
    said = json.dumps(extra)
    return replace(commit, author=AUTHOR, message=f"{group} up to {position}", extra_info=said)
