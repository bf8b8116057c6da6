"""Keys that are looked for in many files: made ready once, however often it is asked."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.merge.keys import key_hashes

__all__ = ["KeySet"]

HASHED_FROM = 20_000  # for fewer keys, Arrow's own search is ready sooner: it hashes all of them for every question


class KeySet:
    """Distinct keys. Many are found by their hashes, which are kept in order, and then compared."""

    def __init__(self, keys: pa.Array, hashed_from: int = HASHED_FROM) -> None:
        self._keys = keys
        self._hashed = len(keys) >= max(hashed_from, 1)
        if self._hashed:
            hashes = key_hashes(keys)
            self._order = np.argsort(hashes)
            self._hashes = hashes[self._order]

    def among(self, here: pa.Array) -> npt.NDArray[np.int64]:
        """The places, ascending, at which `here` has one of the keys."""
        if not self._hashed:
            return _places(pc.is_in(here, value_set=self._keys))
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


def _places(mask: pa.Array) -> npt.NDArray[np.int64]:
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False))
