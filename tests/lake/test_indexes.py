"""Indexes are kept in a folder: made once, never trusted when damaged, and no more than there is room for."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headwater.lake import indexes
from headwater.lake.indexes import IN_USE, UNUSED, KeyIndexes, Parts, file_identity
from headwater.lake.keyindex import index_parts, index_schema
from headwater.values.keyset import KeySet

KEYS = [f"key {number}".encode() for number in range(1000)]


class Folder:
    """A folder of indexes, and the names of those that were made in it."""

    def __init__(self, path: Path, limit: int = indexes.LIMIT) -> None:
        self.path = path
        self.made: list[str] = []
        self._indexes = KeyIndexes(str(path), limit)

    def find(self, name: str, key: bytes = KEYS[7], rows: int = len(KEYS)) -> list[int] | None:
        """Where the index says that the key is; None if there is no index."""

        def make() -> Parts:
            self.made.append(name)
            schema = index_schema(numbers=False, row_ids=False)
            return schema, index_parts([(np.arange(len(KEYS)), pa.array(KEYS, pa.binary()))], None, schema)

        index = self._indexes.get(name, rows, make)
        return None if index is None else index.among(KeySet(pa.array([key]))).at.tolist()

    @property
    def files(self) -> list[Path]:
        return sorted(self.path.iterdir())

    def last_used(self, seconds_ago: float) -> None:
        for each in self.files:
            os.utime(each, (time.time() - seconds_ago,) * 2)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "log" / "index")


def restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker, which has no index open."""
    monkeypatch.setattr(indexes, "_opened", indexes._Opened(2))


def test_an_index_is_made_once_and_outlives_the_worker(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [folder.find("a"), folder.find("a"), folder.find("b")] == [[7], [7], [7]]
    restarted(monkeypatch)
    assert folder.find("a", KEYS[9]) == [9]
    assert folder.find("a", b"no key") == []
    assert folder.made == ["a", "b"]


def test_an_index_that_is_not_there_is_not_made_unless_asked_for(folder: Folder) -> None:
    assert KeyIndexes(str(folder.path)).get("a", 1000, None) is None
    folder.find("a")
    assert KeyIndexes(str(folder.path)).get("a", 1000, None) is not None


@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "a byte", "the checksum", "another's"])
def test_an_index_that_is_damaged_is_made_anew(folder: Folder, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.find("a")
    (file,) = folder.files
    content = bytearray(file.read_bytes())
    match damage:
        case "missing":
            file.unlink()
        case "empty":
            replaced(file, b"")
        case "truncated":
            replaced(file, content[:-100])
        case "another's":
            folder.find("b")
            (other,) = set(folder.files) - {file}
            replaced(file, other.read_bytes())
        case _:
            content[len(content) // 2 if damage == "a byte" else -1] ^= 1
            replaced(file, content)
    restarted(monkeypatch)
    assert folder.find("a") == [7]
    assert folder.made.count("a") == 2


def replaced(file: Path, content: bytes | bytearray) -> None:
    """Not changed in place: a worker has it mapped."""
    file.unlink()
    file.write_bytes(content)


def test_an_index_that_was_removed_can_be_searched_by_a_worker_that_has_it_open(folder: Folder) -> None:
    folder.find("a")
    folder.files[0].unlink()
    assert folder.find("a") == [7]
    assert folder.made == ["a"]


def test_a_worker_opens_again_what_it_had_to_close(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    restarted(monkeypatch)  # with room for two
    for name in "abcabc":
        assert folder.find(name) == [7]
    assert folder.made == ["a", "b", "c"]


def test_there_are_no_more_indexes_than_there_is_room_for_and_those_in_use_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path / "index", limit=100_000)  # for two, as they are estimated
    found = {name: folder.find(name) for name in "abcd"}
    assert [name for name, at in found.items() if at == [7]] == folder.made
    assert 0 < len(folder.made) < 4
    kept = [each.name for each in folder.files]
    folder.last_used(IN_USE + 1)
    restarted(monkeypatch)
    assert folder.find("d", rows=3000) == [7]  # all the room there is
    assert [each.name for each in folder.files if each.name in kept] == []


def test_what_was_not_used_for_a_day_goes_with_what_killed_workers_have_left(folder: Folder) -> None:
    folder.find("a")
    (folder.path / "unfinished").write_bytes(b"x")
    folder.last_used(UNUSED + 1)
    folder.find("b")
    assert len(folder.files) == 1


def test_an_index_in_use_is_noted_as_such(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.find("a")
    folder.last_used(UNUSED + 1)
    restarted(monkeypatch)
    folder.find("a")
    folder.find("b")
    assert len(folder.files) == 2


def test_without_a_folder_to_write_to_there_is_no_index(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert Folder(tmp_path / "file").find("a") is None
    assert Folder(tmp_path / "file" / "below").find("a") is None


def test_a_folder_of_another_user_is_left_alone(tmp_path: Path) -> None:
    if os.getuid() == 0:
        (tmp_path / "theirs").mkdir()
        os.chown(tmp_path / "theirs", 65534, 65534)
    folder = Folder(tmp_path / "theirs" if os.getuid() == 0 else Path("/"))
    assert folder.find("a") is None
    assert folder.made == []


def test_nothing_is_left_of_an_index_that_could_not_be_made(folder: Folder) -> None:
    def make() -> Parts:
        raise ValueError("the data file cannot be read")

    with pytest.raises(ValueError, match="cannot be read"):
        KeyIndexes(str(folder.path)).get("a", 1000, make)
    assert folder.files == []


def test_a_file_that_took_the_name_of_another_has_another_identity(tmp_path: Path) -> None:
    file = tmp_path / "part.parquet"
    file.write_bytes(b"four")
    before = file_identity(str(file), 4)
    file.write_bytes(b"size")  # the same
    os.utime(file, (1, 1))
    file_identity.cache_clear()
    assert file_identity(str(file), 4) != before


@pytest.mark.parametrize(("log", "beside"), [("/var/log", True), ("s3://bucket/log", False)])
def test_indexes_are_beside_a_log_on_disk_and_else_with_temporary_files(log: str, beside: bool) -> None:
    found = KeyIndexes.of_group(log, "1-db/shop").path
    assert (found == "/var/log/index/1-db/shop") == beside
    assert "s3:" not in found


def test_each_machine_has_the_indexes_of_a_log_in_s3_with_its_own_temporary_files(tmp_path: Path) -> None:
    packed = pickle.dumps(KeyIndexes.of_group("s3://bucket/log", "1-db/shop"))
    elsewhere = "import pickle, sys; print(pickle.load(sys.stdin.buffer).path)"
    there = os.environ | {"TMPDIR": str(tmp_path)}
    path = subprocess.check_output([sys.executable, "-c", elsewhere], input=packed, env=there)
    assert path.decode().strip() == f"{tmp_path}/headwater-{os.getuid()}-1-db-shop"
