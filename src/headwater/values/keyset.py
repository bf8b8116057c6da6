"""Keys that are looked for in many files: made ready once, however often it is asked."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.values.keys import key_hashes, key_numbers

__all__ = ["KeySet", "runs"]

Number = TypeVar("Number", np.int64, np.uint64)
HASHED_FROM = 20_000  # for fewer keys, Arrow's own search is ready sooner: it hashes all of them for every question


class _Hashed(NamedTuple):
    """Hashes of keys, ascending, and which key each is of."""

    hashes: npt.NDArray[np.uint64]
    order: npt.NDArray[np.int64]


class KeySet:
    """Distinct keys. Many are found by their hashes, which are kept in order, and then compared.

    Keys of eight bytes are compared as numbers: most keys are numbers, and a copied file has them in order.
    """

    def __init__(self, keys: pa.Array, hashed_from: int = HASHED_FROM) -> None:
        self._keys = keys
        self._many = len(keys) >= max(hashed_from, 1)
        numbers = key_numbers(keys)
        self._numbers = None if numbers is None else np.sort(numbers)

    def __len__(self) -> int:
        return len(self._keys)

    @cached_property
    def hashes(self) -> npt.NDArray[np.uint64]:
        """Of all keys, ascending, each once."""
        return np.unique(self._hashed[0])

    @property
    def numbers(self) -> npt.NDArray[np.int64]:
        """The keys as ascending numbers; each must have eight bytes."""
        assert self._numbers is not None
        return self._numbers

    def among(self, here: pa.Array) -> npt.NDArray[np.int64]:
        """The places, ascending, at which `here` has one of the keys."""
        numbers = None if self._numbers is None else key_numbers(here)
        if numbers is not None:
            return self._among_numbers(numbers)
        if not self._many or self._numbers is not None:
            return _true(pc.is_in(here, value_set=self._keys))
        return self.among_few(here)

    def among_few(self, here: pa.Array) -> npt.NDArray[np.int64]:
        """Like `among`, quickest if `here` is small: nothing is made ready for it that is not kept."""
        hashes, known = key_hashes(here), self._hashed
        near = np.minimum(np.searchsorted(known.hashes, hashes), len(known.hashes) - 1)
        alike = np.flatnonzero(known.hashes[near] == hashes) if len(known.hashes) else near[:0]
        near_hits = here.take(pa.array(alike)).cast(self._keys.type)
        same: npt.NDArray[np.bool_] = pc.equal(near_hits, self._keys.take(pa.array(known.order[near[alike]]))).to_numpy(
            zero_copy_only=False
        )
        if not same.all():  # two keys have one hash
            same = same | pc.is_in(near_hits, value_set=self._keys).to_numpy(zero_copy_only=False)
        return alike[same]

    @cached_property
    def _hashed(self) -> _Hashed:
        hashes = key_hashes(self._keys)
        order = np.argsort(hashes)
        return _Hashed(hashes[order], order)

    def _among_numbers(self, here: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        wanted = self._numbers
        assert wanted is not None
        ascending = bool(np.all(here[1:] >= here[:-1]))
        if ascending and len(wanted) < len(here):
            return runs(here, wanted)
        if ascending or self._many:
            near = np.minimum(np.searchsorted(wanted, here), max(len(wanted) - 1, 0))
            return np.flatnonzero(wanted[near] == here) if len(wanted) else near[:0]
        return _true(pc.is_in(pa.array(here), value_set=pa.array(wanted)))


def _true(mask: pa.Array) -> npt.NDArray[np.int64]:
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False))


def runs(here: npt.NDArray[Number], wanted: npt.NDArray[Number]) -> npt.NDArray[np.int64]:
    """All places at which an ascending array has one of some ascending numbers.

    A file may hold a key more than once, if only one row is live.
    """
    first = np.searchsorted(here, wanted)
    present = np.flatnonzero(first < len(here))
    present = present[here[first[present]] == wanted[present]]
    first, sizes = first[present], np.searchsorted(here, wanted[present], "right") - first[present]
    before = np.cumsum(sizes) - sizes
    return np.repeat(first - before, sizes) + np.arange(sizes.sum())
