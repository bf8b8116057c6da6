"""Raw pgoutput messages of one relation → its columns, one numpy pass a column, no loop over rows.

The messages, after the tag and the relation's OID (every cell is a kind byte, and for text a length and the bytes):
    Insert  I oid           N count cells
    Update  U oid  [K|O count cells]  N count cells     K: the old key, if it changed   O: the whole old row
    Delete  D oid   K|O count cells
A `K` tuple has a cell for every column of the relation; those outside the key are null.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.errors import TableError

__all__ = ["NULL", "TEXT", "UNCHANGED", "Cells", "Split", "Tuples", "new_row", "old_row", "split"]

TEXT, NULL, UNCHANGED = (ord(kind) for kind in "tnu")  # unchanged: a TOASTed value that an update left alone
_INSERT, _UPDATE, _DELETE = (ord(op) for op in "IUD")
_NEW, _OLD_KEY, _OLD_ROW = (ord(mark) for mark in "NKO")
_FIRST_MARK = 5  # after the tag and the OID
_HEAD = 3  # of a tuple: its mark and its count
_SCAN = 150  # bytes that are scanned in the time in which one cell is followed
_HUGE = 1 << 29  # a length whose first byte could be one of a text
_FOLLOWS = np.isin(np.arange(256), list(b"tnuIUD"))  # what may stand behind a cell: another, or the next message

_Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Cells:
    """One column of many tuples: its bytes (large_binary, null unless the kind is TEXT) and each cell's kind."""

    text: pa.Array
    kind: npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Tuples:
    """The new, or the old, tuples of those messages that have one; `rows` are their indexes, ascending."""

    rows: _Places
    cells: dict[int, Cells]  # by column


@dataclass(frozen=True, slots=True)
class Split:
    """Messages taken apart: `op` for each of them, `whole` for each old tuple (the entire row, not just the key).

    `holes`, for each new tuple: some value of it is UNCHANGED, and the old tuple does not have it either (`values`).
    """

    op: npt.NDArray[np.uint8]
    new: Tuples
    old: Tuples
    whole: npt.NDArray[np.bool_]
    holes: npt.NDArray[np.bool_]

    def values(self, column: int, *, in_key: bool) -> Cells:
        """A column of the new tuples, UNCHANGED values taken from the old tuple of the same message if it has them."""
        cells = self.new.cells[column]
        holes = cells.kind == UNCHANGED
        if not holes.any():
            return cells
        having = np.flatnonzero(self.whole | in_key)  # an old key has key columns only
        mine = np.searchsorted(self.new.rows, self.old.rows[having])
        mine[mine == len(holes)] = 0  # a delete: it has no new tuple
        fits = (self.new.rows[mine] == self.old.rows[having]) & holes[mine]
        having, mine = having[fits], mine[fits]
        old = self.old.cells[column]
        kind = cells.kind.copy()
        kind[mine] = old.kind[having]
        at = np.arange(len(holes))
        at[mine] = len(holes) + having
        return Cells(pa.concat_arrays([cells.text, old.text]).take(pa.array(at)), kind)


def split(messages: pa.Array, count: int, columns: Collection[int] | None = None, *, find_holes: bool = False) -> Split:
    """Take apart insert, update and delete messages of a relation with `count` columns; `columns`: only these.

    `find_holes`: `columns` are the key, and `holes` is computed, which takes a look at every column.
    """
    wanted = frozenset(range(count) if columns is None else columns)
    if len(messages) == 0:
        none = Tuples(np.zeros(0, np.int64), {column: _no_cells() for column in wanted})
        return Split(np.zeros(0, np.uint8), none, none, np.zeros(0, bool), np.zeros(0, bool))
    try:
        return _Walk(messages, count, wanted).split(find_holes=find_holes)
    except IndexError as exc:
        raise _malformed("it is cut short") from exc


class _Walk:
    def __init__(self, messages: pa.Array, count: int, wanted: frozenset[int]) -> None:
        if messages.null_count:
            raise _malformed("it is null")
        self.count = count
        self.wanted = wanted
        _, offsets, self.data = messages.buffers()
        width = np.int64 if pa.types.is_large_binary(messages.type) else np.int32
        window = slice(messages.offset, messages.offset + len(messages) + 1)
        self.edges = np.frombuffer(offsets, width)[window].astype(np.int64)
        self.bytes = np.frombuffer(self.data or b"", np.uint8)
        if (np.diff(self.edges) < _FIRST_MARK + _HEAD).any():
            raise IndexError
        # The big-endian integers that start at any byte: one gather reads them all, aligned or not.
        self.uint16 = np.ndarray((len(self.bytes) - 1,), ">u2", self.bytes, strides=(1,))
        self.uint32 = np.ndarray((len(self.bytes) - 3,), ">u4", self.bytes, strides=(1,))

    def split(self, *, find_holes: bool) -> Split:
        starts, ends = self.edges[:-1], self.edges[1:]
        op, mark = self.bytes[starts], self.bytes[starts + _FIRST_MARK]
        has_old = mark != _NEW
        self._check(op, mark, has_old)
        at = starts + _FIRST_MARK
        old_rows, new_rows = np.flatnonzero(has_old), np.flatnonzero(op != _DELETE)
        old, at[old_rows] = self._tuples(old_rows, at[old_rows], to_the_end=True)
        if not np.array_equal(at[op == _DELETE], ends[op == _DELETE]):
            raise _malformed("it goes on after its last column")
        if (self.bytes[at[new_rows]] != _NEW).any():
            raise _malformed("the new row is missing")
        heads = at.copy() if find_holes else at
        new, at[new_rows] = self._tuples(new_rows, at[new_rows], to_the_end=False)
        if self.count - 1 in self.wanted and not np.array_equal(at, ends):
            raise _malformed("it goes on after its last column")
        holes = np.zeros(len(new_rows), bool)
        if find_holes:
            updates = np.flatnonzero((op == _UPDATE) & (mark != _OLD_ROW))  # an old row fills its own holes
            updates = self._suspects(updates)
            holes[np.searchsorted(new_rows, updates)] = self._holes(heads[updates] + _HEAD, mark[updates] == _OLD_KEY)
        return Split(op, new, old, mark[old_rows] == _OLD_ROW, holes)

    def _suspects(self, rows: _Places) -> _Places:
        """Those of these messages that may have an UNCHANGED cell; most have no such letter before another cell.

        Not that it were needed, but looking at every byte takes a tenth of the time of following the cells, as long
        as there are not too many of them.
        """
        first, end = int(self.edges[0]), int(self.edges[-1])
        if end - first > _SCAN * self.count * len(rows) or (np.diff(self.edges) >= _HUGE).any():
            return rows
        at = np.flatnonzero(self.bytes[first : end - 2] == UNCHANGED) + first
        after = self.bytes[at + 1]
        at = at[_FOLLOWS[after] & ((after != TEXT) | (self.bytes[at + 2] < _HUGE >> 24))]
        found = np.zeros(len(self.edges) - 1, bool)
        found[np.searchsorted(self.edges, at, side="right") - 1] = True
        found[-1:] = True  # nothing follows its end
        return rows[found[rows]]

    def _holes(self, at: _Places, key_sent: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Whether the tuples whose cells start at `at` have an UNCHANGED value outside of a key that was sent."""
        found = np.zeros(len(at), bool)
        for column in range(self.count):
            kind, _, at = self._column(at)
            found |= (kind == UNCHANGED) & ~(key_sent & (column in self.wanted))
        return found

    def _check(self, op: npt.NDArray[np.uint8], mark: npt.NDArray[np.uint8], has_old: npt.NDArray[np.bool_]) -> None:
        known = np.isin(op, (_INSERT, _UPDATE, _DELETE)) & np.isin(mark, (_NEW, _OLD_KEY, _OLD_ROW))
        fits = (has_old | (op != _DELETE)) & (~has_old | (op != _INSERT))
        if not (known & fits).all():
            raise _malformed("it is no insert, update or delete")

    def _tuples(self, rows: _Places, at: _Places, *, to_the_end: bool) -> tuple[Tuples, _Places]:
        """The tuples whose marks stand at `at`, and where they end (or where their last wanted column does)."""
        counts = self.uint16[at + 1]
        if (counts != self.count).any():
            raise TableError(
                f"a change has {counts[counts != self.count][0]} columns, its relation {self.count}",
                hint="the message was staged under another version of the table; please report this",
            )
        at = at + _HEAD
        cells = {}
        last = self.count - 1 if to_the_end else max(self.wanted, default=-1)
        for column in range(last + 1):
            kind, start, at = self._column(at)
            if column in self.wanted:
                cells[column] = Cells(self._gather(kind == TEXT, start, at), kind)
        return Tuples(rows, cells), at

    def _column(self, at: _Places) -> tuple[npt.NDArray[np.uint8], _Places, _Places]:
        """The kind of the cells at `at`, and where each one's value starts and ends."""
        kind = self.bytes[at]
        text = kind == TEXT
        if text.all():
            start = at + 5
            return kind, start, start + self.uint32[at + 1]
        if (~text & (kind != NULL) & (kind != UNCHANGED)).any():
            raise _malformed("a cell is neither text, null nor unchanged")
        start = at + np.where(text, 5, 1)
        return kind, start, start + np.where(text, self.uint32[np.where(text, at + 1, 0)], 0)

    def _gather(self, text: npt.NDArray[np.bool_], start: _Places, end: _Places) -> pa.Array:
        # Values and the gaps between them, in turn, are an array too; taking every other one copies in C++.
        if len(start) == 0:
            return pa.array([], pa.large_binary())
        turns = np.empty(2 * len(start), np.int64)
        turns[0::2], turns[1::2] = start, end
        if turns[-1] > len(self.bytes):
            raise IndexError
        both = pa.Array.from_buffers(pa.large_binary(), len(turns) - 1, [None, pa.py_buffer(turns), self.data])
        every_other = np.arange(0, len(turns), 2)
        return both.take(pa.array(every_other) if text.all() else pa.array(every_other, mask=~text))


def new_row(message: bytes) -> list[bytes | int | None]:
    """The new tuple of one insert or update: text, None for NULL, UNCHANGED where no tuple of it has the value."""
    at = _FIRST_MARK
    old: list[bytes | int | None] = []
    if message[at] != _NEW:
        whole = message[at] == _OLD_ROW
        old, at = _row(message, at)
        old = old if whole else []
    new, _ = _row(message, at)
    return [theirs if mine == UNCHANGED else mine for mine, theirs in zip(new, old or new, strict=True)]


def old_row(message: bytes) -> list[bytes | int | None]:
    """The old tuple of one update or delete that has one: the whole row, or its key with null for the rest."""
    return _row(message, _FIRST_MARK)[0]


def _row(message: bytes, at: int) -> tuple[list[bytes | int | None], int]:
    cells: list[bytes | int | None] = []
    count = int.from_bytes(message[at + 1 : at + _HEAD])
    at += _HEAD
    for _ in range(count):
        kind = message[at]
        if kind == TEXT:
            size = int.from_bytes(message[at + 1 : at + 5])
            cells.append(message[at + 5 : at + 5 + size])
            at += 5 + size
        else:
            cells.append(None if kind == NULL else UNCHANGED)
            at += 1
    return cells, at


def _no_cells() -> Cells:
    return Cells(pa.array([], pa.large_binary()), np.zeros(0, np.uint8))


def _malformed(why: str) -> TableError:
    return TableError(f"a staged message cannot be read: {why}", hint="this is a bug; please report it")
