"""Questions to a catalog, all of which one transaction answers: it costs less, and all answers are of one moment."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

from headwater.ducklake.catalog import Catalog, Raced, Transaction, open_catalog
from headwater.ducklake.url import LakeUrl
from headwater.errors import Unreachable

__all__ = ["Asking", "asking"]


class _Held(threading.local):
    """The transactions in which this thread asks everything."""

    def __init__(self) -> None:
        self.transactions: dict[LakeUrl, Transaction] = {}


_held = _Held()


class Asking:
    """Asks one catalog; it may be used from several threads."""

    def __init__(self, catalog: Catalog, url: LakeUrl) -> None:
        self._catalog = catalog
        self._url = url
        self._held = _Held()  # those of this one

    @property
    def at_once_now(self) -> bool:
        """Whether this thread is inside `at_once`."""
        return self._url in self._held.transactions

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """A transaction for questions; inside `at_once`, that of it."""
        held = self._held.transactions.get(self._url)
        if held is not None:
            yield held
            return
        try:
            with self._catalog.transaction() as tx:
                yield tx
        except Raced as error:
            raise Unreachable(f"the catalog {self._url} stayed locked", hint="another client holds it") from error

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Inside, this thread asks everything in one transaction, and so does `asking` the same catalog."""
        if self.at_once_now:
            yield
            return
        with self.transaction() as tx:
            before = dict(_held.transactions)
            self._held.transactions[self._url] = _held.transactions[self._url] = tx
            try:
                yield
            finally:
                self._held.transactions.clear()
                _held.transactions = before


@contextmanager
def asking(url: LakeUrl) -> Iterator[Transaction]:
    """A transaction for questions to the catalog at `url`; if this thread asks it everything at once, that of it."""
    held = _held.transactions.get(url)
    if held is not None:
        yield held
        return
    with closing(open_catalog(url)) as catalog, Asking(catalog, url).transaction() as tx:
        yield tx
