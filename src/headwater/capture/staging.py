"""What capture asks of its neighbours: of the log, and of whoever completes a relation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.capture.watch import Definitions
from headwater.change import Committed, Lsn, Relation

__all__ = ["Complete", "StagedFile", "Staging"]


class StagedFile(Protocol):
    """A file of the log, not yet part of it."""

    @property
    def file_bytes(self) -> int: ...


Staged = TypeVar("Staged", bound=StagedFile)

# A relation as a message has it, the one before it of the same oid, and the xid of the transaction, which has
# committed: the relation with all that the source's catalog adds.
Complete = Callable[[Relation, Relation | None, int], Relation]


class Staging(Definitions, Protocol[Staged]):
    """The log, as its one writer sees it. A file is staged first and part of the log when it is registered."""

    def sweep(self) -> int:
        """Delete what earlier writers staged and never registered."""

    def stage(self, columns: Mapping[str, pa.Array]) -> Staged: ...
    def register(self, written: Sequence[Staged], after: Lsn, upto: Lsn) -> None: ...
    def discard(self, written: Sequence[Staged]) -> None: ...

    def leave_out(self, written: Sequence[Staged], xids: npt.NDArray[np.int64]) -> tuple[list[Staged], set[int]]:
        """The files without the rows of these subtransactions, and the relation versions of the others."""

    def settle(self, written: Sequence[Staged], commit: Committed, versions: Mapping[int, int]) -> list[Staged]:
        """A streamed transaction's files, now that it has committed; relation versions are renamed."""

    def newest(self, oid: int, upto: Lsn | None = None) -> tuple[Lsn, Relation] | None:
        """The newest relation version of a table; with `upto`, the newest before a transaction that commits there."""

    def reserve(self) -> int:
        """An id for a relation version that is to come."""

    def relation(
        self,
        relation: Relation,
        lsn: Lsn,
        before: Relation | None = None,
        id: int | None = None,
        *,
        defined: bool = False,
    ) -> Relation:
        """The relation with its version id, as it follows on `before` in a transaction that commits at `lsn`.

        With an id of `reserve` it is a new version in any case. `defined`: it counts also without a row.
        """

    def distrust(self) -> None:
        """Event triggers have not reported everything: until they are looked at again, the catalog is read."""

    def forget(self) -> None: ...
