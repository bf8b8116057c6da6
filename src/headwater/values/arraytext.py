"""PostgreSQL's text of arrays → offsets of the lists and texts of their elements, for a whole column at once in numpy.

`{1,NULL,"a b"}`, nested for more dimensions. An element is quoted if it could be mistaken: it is empty, is the word
NULL, or contains a quote, a backslash, a brace, the delimiter or whitespace. So a quote without a backslash before it
separates quoted from plain text, and a brace or delimiter in plain text is structure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.values.buffers import flat, large_binary

__all__ = ["Lists", "split_lists"]

_Mask = npt.NDArray[np.bool_]
_Numbers = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]

_OPEN, _CLOSE, _NEXT = 1, 2, 3
_STEP = np.array([0, 1, -1, 0], np.int8)  # deeper or back, by kind
_NULL = np.frombuffer(b"NULL", np.uint8)


@dataclass(frozen=True, slots=True)
class Lists:
    """A column of arrays taken apart. `fits`: the rows, neither NULL nor of other dimensions, whose lists these are."""

    fits: _Mask
    offsets: tuple[_Numbers, ...]  # of the lists at each depth, the outermost first
    leaves: pa.Array  # large binary: the texts of all elements, null where they are NULL

    def owners(self, leaves: _Numbers) -> _Numbers:
        """The rows to which these leaves (by index) belong."""
        for offsets in reversed(self.offsets):
            leaves = np.searchsorted(offsets, leaves, side="right") - 1
        return np.flatnonzero(self.fits)[leaves]


def split_lists(raw: pa.Array, depth: int, delimiter: str) -> Lists:
    """Take apart a large binary column of arrays of `depth` dimensions; {} is one of any.

    Arrays of other dimensions, or with explicit bounds (`[2:3]={7,8}`), do not fit.
    ArrowInvalid: some of this is not the text of an array.
    """
    fits = raw.is_valid().to_numpy(zero_copy_only=False).copy()
    fits[fits] = _fitting(*flat(raw.drop_null()), depth)
    lengths, body = flat(raw.filter(pa.array(fits)))
    escapes = _escapes(body)
    quotes = body == ord('"')
    quotes[escapes + 1] = False
    at, kind, level = _structure(body, quotes, delimiter)
    if not np.array_equal(at[(kind == _CLOSE) & (level == 0)], np.cumsum(lengths) - 1) or (level > depth).any():
        raise pa.ArrowInvalid("not the text of an array")
    opened = [at[(kind == _OPEN) & (level == each + 1)] for each in range(depth)]
    full = np.take(body, at + 1, mode="clip") != ord("}")
    first = np.flatnonzero((level == depth) & ((kind == _NEXT) | ((kind == _OPEN) & full)))
    starts, ends = at[first] + 1, at[first + 1]
    offsets = tuple(_offsets(each, inner) for each, inner in zip(opened, [*opened[1:], starts], strict=True))
    quotes[escapes] = True
    return Lists(fits, offsets, _leaves(body, starts, ends, at, np.flatnonzero(quotes)))


def _fitting(lengths: _Numbers, body: _Bytes, depth: int) -> _Mask:
    """Which arrays have `depth` dimensions: they begin with as many braces; with explicit bounds, with a bracket."""
    heads = np.cumsum(lengths) - lengths
    braces = [np.take(body, heads + each, mode="clip") == ord("{") for each in range(depth + 1)] if len(body) else []
    if not braces:
        return np.zeros(len(lengths), bool)
    empty = braces[0] & (lengths == 2)
    fitting: _Mask = empty | (np.logical_and.reduce(braces[:-1]) & ~braces[-1] & (lengths > 2 * depth))
    return fitting


def _escapes(body: _Bytes) -> _Numbers:
    """Where a backslash escapes the next character: the first, third ... of each run of them."""
    slashes = np.flatnonzero(body[:-1] == ord("\\"))
    begins = np.diff(slashes, prepend=-2) != 1
    begin = np.maximum.accumulate(np.where(begins, slashes, 0))
    escapes: _Numbers = slashes[(slashes - begin) % 2 == 0]
    return escapes


def _structure(body: _Bytes, quotes: _Mask, delimiter: str) -> tuple[_Numbers, npt.NDArray[np.int8], _Numbers]:
    """The places of braces and delimiters outside quotes, the kind of each, and the depth after it."""
    signs = np.zeros(256, np.int8)
    signs[[ord("{"), ord("}"), ord(delimiter)]] = _OPEN, _CLOSE, _NEXT
    found = signs[body]
    if quotes.any():
        found *= 1 - np.bitwise_xor.accumulate(quotes.view(np.int8))
    at = np.flatnonzero(found)
    kind = found[at]
    return at, kind, np.cumsum(_STEP[kind], dtype=np.int64)


def _offsets(lists: _Numbers, inner: _Numbers) -> _Numbers:
    """Where each list's part of its inner ones begins, from the places where both open."""
    return np.append(np.searchsorted(inner, lists), len(inner))


def _leaves(body: _Bytes, starts: _Numbers, ends: _Numbers, at: _Numbers, marks: _Numbers) -> pa.Array:
    """The elements between `starts` and `ends`, without the structure `at` and the quoting `marks`."""
    valid = np.ones(len(starts), bool)
    words = np.flatnonzero(ends - starts == len(_NULL))  # "NULL" in quotes is longer, and a text like any other
    valid[words] = (body[starts[words][:, None] + np.arange(len(_NULL))] != _NULL).any(axis=1)
    kept = np.ones(len(body), bool)
    kept[at] = kept[marks] = False
    sizes = ends - starts
    if len(marks):
        sizes = sizes - (np.searchsorted(marks, ends) - np.searchsorted(marks, starts))
    texts = body[kept]
    if len(texts) != sizes.sum():  # there is text outside the elements
        raise pa.ArrowInvalid("not the text of an array")
    return large_binary(sizes, texts, valid)
