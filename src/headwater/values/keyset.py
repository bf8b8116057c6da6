"""Keys that are looked for in many files: made ready once, however often it is asked."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.values.keys import key_hashes, key_numbers

__all__ = ["KeySet"]

HASHED_FROM = 20_000  # for fewer keys, Arrow's own search is ready sooner: it hashes all of them for every question


class KeySet:
    """Distinct keys. Many are found by their hashes, which are kept in order, and then compared.

    Keys of eight bytes are compared as numbers: most keys are numbers, and a copied file has them in order.
    """

    def __init__(self, keys: pa.Array, hashed_from: int = HASHED_FROM) -> None:
        self._keys = keys
        self._many = len(keys) >= max(hashed_from, 1)
        numbers = key_numbers(keys)
        self._numbers = None if numbers is None else np.sort(numbers)
        if self._many and self._numbers is None:
            hashes = key_hashes(keys)
            self._order = np.argsort(hashes)
            self._hashes = hashes[self._order]

    def among(self, here: pa.Array) -> npt.NDArray[np.int64]:
        """The places, ascending, at which `here` has one of the keys."""
        numbers = None if self._numbers is None else key_numbers(here)
        if numbers is not None:
            return self._among_numbers(numbers)
        if not self._many or self._numbers is not None:
            return _true(pc.is_in(here, value_set=self._keys))
        return self._among_hashes(here)

    def _among_numbers(self, here: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        wanted = self._numbers
        assert wanted is not None
        ascending = bool(np.all(here[1:] >= here[:-1]))
        if ascending and len(wanted) < len(here):
            return _runs(np.searchsorted(here, wanted), np.searchsorted(here, wanted, "right"))
        if ascending or self._many:
            near = np.minimum(np.searchsorted(wanted, here), max(len(wanted) - 1, 0))
            return np.flatnonzero(wanted[near] == here) if len(wanted) else near[:0]
        return _true(pc.is_in(pa.array(here), value_set=pa.array(wanted)))

    def _among_hashes(self, here: pa.Array) -> npt.NDArray[np.int64]:
        hashes = key_hashes(here)
        near = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        alike = np.flatnonzero(self._hashes[near] == hashes)
        near_hits = here.take(pa.array(alike)).cast(self._keys.type)
        same: npt.NDArray[np.bool_] = pc.equal(near_hits, self._keys.take(pa.array(self._order[near[alike]]))).to_numpy(
            zero_copy_only=False
        )
        if not same.all():  # two keys have one hash
            same = same | pc.is_in(near_hits, value_set=self._keys).to_numpy(zero_copy_only=False)
        return alike[same]


def _true(mask: pa.Array) -> npt.NDArray[np.int64]:
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False))


def _runs(first: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """All places from each `first` up to its `end`: a file may hold a key more than once, if only one row is live."""
    sizes = end - first
    before = np.cumsum(sizes) - sizes
    return np.repeat(first - before, sizes) + np.arange(sizes.sum())
