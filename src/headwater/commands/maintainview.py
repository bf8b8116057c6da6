"""What maintenance did, or would do, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click

from headwater.lake.maintenance import Chores, Figures
from headwater.lake.packing import ENOUGH_FILES
from headwater.supervise.maintaining import Maintained
from headwater.words import counted, size_text

__all__ = ["chores_text", "figures_text", "show", "show_explained"]


def show(found: Sequence[Maintained], *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([_object(each) for each in found], indent=2))
        return
    for each in found:
        click.echo(f"{each.table}: {_sentence(each, dry_run=dry_run)}")


def show_explained(found: Sequence[Maintained]) -> None:
    """What each table is made of, what is worth doing, what it costs, and why."""
    for each in found:
        click.echo(f"{each.table}: {figures_text(each.figures) if each.figures else 'not in the lake any more'}")
        for line in [f"failed: {each.note}"] if each.error else _advice(each):
            click.echo(f"  {line}")


def figures_text(figures: Figures) -> str:
    """`12 files (9 small, 3.4 MB), 120 deleted rows in them, 40 rows in the catalog`."""
    small = f"{figures.small_files:,} small, " if figures.small_files else ""
    parts = [f"{counted(figures.files, 'file')} ({small}{size_text(figures.bytes)})"]
    if figures.deleted_rows:
        parts.append(f"{counted(figures.deleted_rows, 'deleted row')} in them")
    if figures.inlined_rows or figures.old_rows:
        older = f" and {counted(figures.old_rows, 'older version')}" if figures.old_rows else ""
        parts.append(f"{counted(figures.inlined_rows, 'row')}{older} in the catalog")
    if figures.old_files:
        kept = f"{counted(figures.old_files, 'file')} ({size_text(figures.old_bytes)})"
        parts.append(f"{kept} for older snapshots")
    return ", ".join(parts)


def chores_text(done: Chores) -> str:
    """What was done, as `merged 7 files (1.2 MB) into 1`."""
    return "; ".join(_parts(done, dry_run=False))


def _advice(each: Maintained) -> Iterator[str]:
    done = each.chores
    if done.flushed_rows:
        yield f"move {counted(done.flushed_rows, 'row')} into a file: each query reads all rows that are in the catalog"
    if done.merged_files:
        size = size_text(done.merged_bytes)
        why = f"{ENOUGH_FILES} or more small files of about one size, or files of which a fifth is deleted"
        yield f"merge {counted(done.merged_files, 'file')} into {done.written_files:,}, reading {size}: {why}"
    if done.expired_snapshots:
        yield f"expire {counted(done.expired_snapshots, 'snapshot')}: they are older than `maintenance.expire` says"
    if done.expired_files:
        yield f"delete {counted(done.expired_files, 'file')} that no snapshot has had for an hour"
    if done.orphans:
        size = size_text(done.orphan_bytes)
        yield f"delete {counted(done.orphans, 'orphan')} ({size}): no snapshot has them"
    if not done:
        yield "nothing is worth doing"


def _object(each: Maintained) -> dict[str, object]:
    head = {"group": each.group, "table": each.table, "ok": not each.error, "note": each.note}
    return {**head, **asdict(each.chores), "figures": asdict(each.figures) if each.figures else None}


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
        yield f"{verb('expire', 'expired')} {counted(done.expired_snapshots, 'snapshot')}"
    if done.expired_files:
        yield f"{verb('delete', 'deleted')} {counted(done.expired_files, 'file')} that no snapshot has any more"
    if done.orphans:
        size = size_text(done.orphan_bytes)
        yield f"{verb('delete', 'deleted')} {counted(done.orphans, 'orphan')} ({size})"
