"""Where a batch's changes come from: the one contract between the merge and what it reads.

Today that is the log, whose changes are pgoutput messages (`staged.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.merge.mirror import Mirror, MirrorColumn
from headwater.values.decode import Bad

__all__ = ["ChangeReader", "Keyed", "Read", "Reads", "Typed"]


class Read(NamedTuple):
    """Changes of one table under one version of its columns, in commit order.

    `rows` has `commit_lsn` (in another stream than PostgreSQL's, the value of its own position), `seq`, `op` and
    `message`, whose content only the reader knows; for a table that keeps its history also `xid` and `commit_ts`.
    """

    mirror: Mirror
    version: int
    rows: pa.Table


@dataclass(frozen=True, slots=True, eq=False)
class Reads:
    """Changes of several tables that were read at once: `rows` as in `Read`, of one table after the other.

    `tables` has each table with the version of its columns, `of` says for each row which of them it belongs to. Few
    rows of a table cost as much as many to take out, so that is done only where a table is worked on alone.
    """

    tables: tuple[tuple[Mirror, int], ...]
    of: npt.NDArray[np.int64]
    rows: pa.Table

    @classmethod
    def joined(cls, reads: Sequence[Reads]) -> Reads:
        if len(reads) == 1:
            return reads[0]
        firsts = np.cumsum([0, *(len(each.tables) for each in reads)])
        of = np.concatenate([first + each.of for first, each in zip(firsts, reads, strict=False)])
        rows = pa.concat_tables([each.rows for each in reads]).combine_chunks()
        return cls(tuple(table for each in reads for table in each.tables), of, rows)

    def each(self) -> Iterator[Read]:
        """Those that have rows, one by one."""
        edges = np.searchsorted(self.of, np.arange(len(self.tables) + 1)).tolist()
        for (mirror, version), (start, end) in zip(self.tables, pairwise(edges), strict=True):
            if start < end:
                yield Read(mirror, version, self.rows.slice(start, end - start))

    def only(self, which: Sequence[int]) -> Reads:
        """Those of these tables, given by their numbers in ascending order."""
        if len(which) == len(self.tables):
            return self
        numbers = np.full(len(self.tables), -1)
        numbers[list(which)] = np.arange(len(which))
        of = numbers[self.of]
        return Reads(tuple(self.tables[number] for number in which), of[of >= 0], self.rows.filter(pa.array(of >= 0)))


class Keyed(NamedTuple):
    """Changes with their keys: `rows` are indexes of the messages, `late` orders two changes made of one message.

    `holes`: the row has TOASTed values that its message omits; `origin`: the key such a row had before it moved. The
    delete that is its other half has `holes`, too.
    """

    rows: npt.NDArray[np.int64]
    late: npt.NDArray[np.bool_]
    op: npt.NDArray[np.uint8]
    key: pa.Array
    holes: npt.NDArray[np.bool_]
    origin: pa.Array


class Typed(NamedTuple):
    """Rows as the lake has them, and by column the values that its types cannot hold."""

    rows: pa.Table
    bad: dict[str, tuple[Bad, ...]]


class ChangeReader(Protocol):
    """Reads changes inside Spark's workers; picklable."""

    def units(self, tasks: int) -> Sequence[Any]:
        """The changes as at most so many units of similar size, each for one task."""
        ...

    def only(self, tables: Collection[int]) -> ChangeReader:
        """The reader for these tables alone, which is sent to Spark sooner; the others' changes are not read."""
        ...

    def read(self, unit: Any, mirrors: Mapping[int, Mirror]) -> Iterator[Reads]:
        """A unit's changes to these tables, as far as they come after the tables' positions; some megabytes at once."""
        ...

    def tables(self) -> Mapping[int, int]:
        """The table (its OID) of every version."""
        ...

    def layout(self, mirror: Mirror, version: int) -> Hashable:
        """The same for tables whose changes `keyed` and `typed` may be given together, as if they were of one table."""
        ...

    def keyed(self, read: Read) -> Keyed:
        """What each change does to which key. An update that changes the key is a delete there and an insert here."""
        ...

    def typed(self, mirror: Mirror, upserts: pa.Table, lake: pa.Table | None = None) -> Typed:
        """New rows, all of one version, decoded into the table's newest columns.

        `upserts` has at least `relation` and `message`; with holes also what fills them (`net.UPSERT`): older messages,
        or the row of key `base` among `lake`, the lake's own rows with a column `key`.
        """
        ...

    def history(self, read: Read) -> Typed:
        """Every change as a row of the table's history."""
        ...

    def omits(self, mirror: Mirror, column: MirrorColumn, upsert: Mapping[str, Any]) -> bool:
        """Whether neither the row's message nor any before it in the batch has a value for this column."""
        ...
