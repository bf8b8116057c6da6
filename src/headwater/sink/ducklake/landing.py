"""A commit of ours, as people see it in the lake's list of snapshots."""

from __future__ import annotations

import json
from dataclasses import replace

from headwater.ducklake.lake import Lake
from headwater.ducklake.model import PlannedCommit
from headwater.sink.ducklake.quarantine import AUTHOR

__all__ = ["land"]


def land(lake: Lake, commit: PlannedCommit) -> int:
    """Make the snapshot; its message and extra info name the group and the position. Returns its id."""
    position = max(advance.new for advance in commit.positions.values())
    group = commit.source.rsplit("/", 1)[-1]
    extra = json.dumps({"lsn": str(position), "source": commit.source})
    return lake.commit(replace(commit, author=AUTHOR, message=f"{group} up to {position}", extra_info=extra))
