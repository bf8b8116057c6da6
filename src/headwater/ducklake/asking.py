"""Questions to a catalog, all of which one transaction answers: it costs less, and all answers are of one moment."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing, contextmanager

from headwater.ducklake.catalog import Catalog, Raced, Transaction, locked, open_catalog
from headwater.ducklake.url import LakeUrl

__all__ = ["Asking", "asked_at_once", "asking", "kept_open"]


class _Held(threading.local):
    """The transactions in which this thread asks everything, and the catalogs that it keeps open."""

    def __init__(self) -> None:
        self.transactions: dict[LakeUrl, Transaction] = {}
        self.catalogs: dict[LakeUrl, Catalog] = {}


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
            raise locked(self._url) from error

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


def asked_at_once(url: LakeUrl) -> bool:
    """Whether this thread asks the catalog at `url` everything in one transaction."""
    return url in _held.transactions


@contextmanager
def asking(url: LakeUrl) -> Iterator[Transaction]:
    """A transaction for questions to the catalog at `url`; if this thread asks it everything at once, that of it."""
    held = _held.transactions.get(url)
    if held is not None:
        yield held
        return
    with kept_open({url}), Asking(_held.catalogs[url], url).transaction() as tx:
        yield tx


@contextmanager
def kept_open(urls: Collection[LakeUrl]) -> Iterator[None]:
    """Inside, this thread asks each of these catalogs over one connection, in however many transactions."""
    before = _held.catalogs
    with ExitStack() as stack:
        opened = {url: stack.enter_context(closing(open_catalog(url))) for url in urls if url not in before}
        for catalog in opened.values():
            stack.enter_context(catalog.kept_open())
        _held.catalogs = before | opened
        try:
            yield
        finally:
            _held.catalogs = before
