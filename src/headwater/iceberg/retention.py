"""Which snapshots of a table are no longer promised to anyone, and the files that only they needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from headwater.iceberg.manifests import ManifestCache

__all__ = ["expired", "needed_files", "pruned", "unneeded_files", "unreadable"]

KEEP = "history.expire.min-snapshots-to-keep"
KEEP_AGE = "history.expire.max-snapshot-age-ms"
_ALWAYS = 1 << 62
SLACK = 25  # so many snapshots more than are kept, before a commit removes them


def pruned(metadata: TableMetadata, now: datetime) -> list[int]:
    """The snapshots that a commit takes out, as the table's own properties have it; as a rule none.

    All of them are in the file that a commit reads and writes, so without a limit each would take longer.
    """
    keep = _number(metadata.properties, KEEP)
    if keep is None or len(metadata.snapshots) < keep + SLACK:
        return []
    age = _number(metadata.properties, KEEP_AGE)
    return expired(metadata, int(now.timestamp() * 1000) - age, keep) if age else expired(metadata, _ALWAYS, keep)


def expired(
    metadata: TableMetadata, before: int, keep: int = 1, needed: Callable[[Snapshot], bool] = lambda _: False
) -> list[int]:
    """The snapshots that were replaced by a newer one before this time, in milliseconds.

    The newest `keep` stay, what the newest `needed` one is reached through, and what other branches and tags have.
    """
    by_id = {each.snapshot_id: each for each in metadata.snapshots}
    main = list(_ancestry(by_id, metadata.current_snapshot_id))
    replaced = [before, *(each.timestamp_ms for each in main)]  # when each of them was; the newest is not
    for_position = next((at for at, each in enumerate(main) if needed(each)), 0)
    for_age = max((at for at in range(len(main)) if replaced[at] >= before), default=0)
    last = max(keep - 1, for_position, for_age)
    kept = {each.snapshot_id for each in main[: last + 1]}
    for name, ref in metadata.refs.items():
        if name != MAIN_BRANCH:
            kept.update(each.snapshot_id for each in _ancestry(by_id, ref.snapshot_id))
    passed = {each.snapshot_id for each in main}
    return [id_ for id_, each in by_id.items() if id_ not in kept and (id_ in passed or each.timestamp_ms < before)]


def needed_files(table: Table, snapshots: Collection[Snapshot], cache: ManifestCache) -> set[str]:
    """Every file that a reader of one of these snapshots opens."""
    lists = {each.manifest_list for each in snapshots}
    manifests = _manifests(table, snapshots)
    return {*lists, *manifests, *_data_files(table, manifests.values(), cache)}


def unneeded_files(
    table: Table, gone: Collection[Snapshot], kept: Collection[Snapshot], cache: ManifestCache
) -> set[str]:
    """The files that only the snapshots that are gone have."""
    needed = _manifests(table, kept)
    mine = {path: each for path, each in _manifests(table, gone).items() if path not in needed}
    files = _data_files(table, mine.values(), cache)
    if files:
        files -= _data_files(table, needed.values(), cache)
    return {*(each.manifest_list for each in gone), *mine, *files}


def unreadable(table: Table) -> list[int]:
    """The snapshots that have lost their manifest list, or a manifest."""
    return [each.snapshot_id for each in table.metadata.snapshots if not _is_readable(table, each)]


def _is_readable(table: Table, snapshot: Snapshot) -> bool:
    try:
        return all(table.io.new_input(each.manifest_path).exists() for each in snapshot.manifests(table.io))
    except FileNotFoundError:
        return False


def _manifests(table: Table, snapshots: Iterable[Snapshot]) -> dict[str, ManifestFile]:
    return {found.manifest_path: found for each in snapshots for found in each.manifests(table.io)}


def _data_files(table: Table, manifests: Iterable[ManifestFile], cache: ManifestCache) -> set[str]:
    return {entry.data_file.file_path for each in manifests for entry in cache.entries(each, table.io)}


def _ancestry(by_id: Mapping[int, Snapshot], newest: int | None) -> Iterator[Snapshot]:
    while newest is not None and (found := by_id.get(newest)) is not None:
        yield found
        newest = found.parent_snapshot_id


def _number(properties: Mapping[str, Any], name: str) -> int | None:
    """A property that another client may have written, too."""
    text = str(properties.get(name, ""))
    return int(text) if text.isdecimal() and int(text) > 0 else None
