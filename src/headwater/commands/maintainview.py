"""What maintenance did, or would do, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click

from headwater.lake.maintenance import Chores
from headwater.supervise.maintaining import Maintained
from headwater.words import counted, size_text

__all__ = ["show"]


def show(found: Sequence[Maintained], *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([_object(each) for each in found], indent=2))
        return
    for each in found:
        click.echo(f"{each.table}: {_sentence(each, dry_run=dry_run)}")


def _object(each: Maintained) -> dict[str, object]:
    head = {"group": each.group, "table": each.table, "ok": not each.error, "note": each.note}
    return {**head, **asdict(each.chores)}


def _sentence(each: Maintained, *, dry_run: bool) -> str:
    if each.note:
        return f"failed: {each.note}" if each.error else each.note
    parts = list(_parts(each.chores, dry_run=dry_run))
    return ("would " if dry_run else "") + "; ".join(parts) if parts else "nothing to do"


def _parts(done: Chores, *, dry_run: bool) -> Iterator[str]:
    def verb(now: str, past: str) -> str:
        return now if dry_run else past

    if done.flushed_rows:
        yield f"{verb('move', 'moved')} {counted(done.flushed_rows, 'row')} from the catalog into files"
    if done.merged_files:
        old, new = counted(done.merged_files, "file"), f"{done.written_files:,}"
        yield f"{verb('merge', 'merged')} {old} ({size_text(done.merged_bytes)}) into {new}"
    if done.expired_snapshots:
        files = counted(done.expired_files, "file")
        yield f"{verb('expire', 'expired')} {counted(done.expired_snapshots, 'snapshot')} and {files} of them"
    if done.orphans:
        size = size_text(done.orphan_bytes)
        yield f"{verb('delete', 'deleted')} {counted(done.orphans, 'orphan')} ({size})"
