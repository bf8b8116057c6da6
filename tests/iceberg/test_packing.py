"""Which files are merged, and which with which."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from headwater.iceberg.model import DeleteFile, LiveFile
from headwater.iceberg.packing import FILE_BYTES, FILE_ROWS, Bin, packed

SMALL, HALF, FULL = 1000, FILE_BYTES // 2, FILE_BYTES


def file(name: str, size: int = SMALL, rows: int = 100, deleted: int = 0, **more: Any) -> LiveFile:
    deletes = (DeleteFile(f"{name}-deletes", deleted, name),) if deleted else ()
    return LiveFile(name, rows, size, deletes=deletes, **more)


def files(names: Iterable[str], size: int = SMALL, **more: Any) -> list[LiveFile]:
    return [file(name, size, **more) for name in names]


def names(bins: list[Bin]) -> list[str]:
    return ["".join(each.path for each in found.files) for found in bins]


CASES = {
    "no file": ([], []),
    "a few small files can wait": (files("abcd"), []),
    "enough small files become one": (files("abcde"), ["abcde"]),
    "full files stay": (files("abcdefgh", FULL), []),
    "files that are half full stay": (files("abcdefgh", HALF), []),
    "a file of many rows is full, however small they are": (files("abcdefgh", rows=FILE_ROWS), []),
    "rows that are much alike make small files that are full": (files(["a-full.parquet", *"bcde"]), []),
    "a large file does not go with small ones": ([*files("abcde"), file("f", HALF - 1)], ["abcde"]),
    "files of about one size go together, not more than fill one": (files("abcdefgh", FULL // 3), ["abc", "def", "gh"]),
    "a few deletes can wait": ([file("a", FULL, deleted=19)], []),
    "a file with many deletes is written again": ([file("a", FULL, deleted=20)], ["a"]),
    "a file of which nothing is left goes": ([file("a", FULL, deleted=100)], ["a"]),
    "files with many deletes go together": ([*files("ab", FULL, deleted=60), file("c", FULL)], ["ab"]),
    "small ones with many deletes count as small ones": ([*files("abc"), *files("de", deleted=50)], ["abcde"]),
    "and with small ones": ([file("a", FULL, deleted=80), *files("bcdef")], ["abcdef"]),
    "partitions are not mixed": (
        [*files("abcde", partition=("x",), spec_id=1), *files("fghij", partition=("y",), spec_id=1)],
        ["abcde", "fghij"],
    ),
    "nor are the specs of partitions": ([*files("abcd", spec_id=0), *files("efgh", spec_id=1)], []),
    "a partition of null is one, too": (files("abcde", partition=(None,)), ["abcde"]),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_merged(case: str) -> None:
    given, expected = CASES[case]
    assert names(packed(given, lambda each: each.path)) == expected


def test_neighbours_by_the_key_go_together() -> None:
    given = files("afbgchdiej", FULL // 5)
    assert names(packed(given, lambda each: each.path)) == ["abcde", "fghij"]


def test_a_row_is_not_written_again_with_every_few_small_files() -> None:
    """As after each merge, when small files have come: the large one waits until there are others of its size."""
    large, written = file("large", FULL // 4), 0
    for _ in range(100):
        written += sum(each is large for found in packed([large, *files("abcde")], id) for each in found.files)
    assert written == 0
