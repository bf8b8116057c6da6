"""Metadata and manifests are on disk before the catalog refers to them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.iceberg.fileio import DurableFileIO
from tests.iceberg.icebench import IceBench


def test_a_file_and_its_folder_are_synced_when_it_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def observed(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        real(handle)

    monkeypatch.setattr(os, "fsync", observed)
    path = tmp_path / "new" / "metadata.json"
    with DurableFileIO().new_output(str(path)).create() as stream:
        stream.write(b"{}")
    assert path.read_bytes() == b"{}"
    assert synced[-2:] == [str(path), str(path.parent)]
    assert str(tmp_path) in synced  # where the new folder is


def test_every_table_of_a_catalog_is_written_that_way(ice: IceBench) -> None:
    ice.change([(1, "a")])
    ice.refresh()
    assert isinstance(ice.table.io, DurableFileIO)
