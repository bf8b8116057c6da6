"""The overview, written once for each look and sent to everyone who listens."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from starlette.types import ASGIApp, Receive, Scope, Send

from headwater.web.answers import Answers, Refusal
from headwater.web.facts import Facts, Look
from headwater.web.overview import overview

__all__ = ["MOST_STREAMS", "Live"]

MOST_STREAMS = 120  # at once: a page has a second connection now and then, and others need some of the 300, too

LOOK_EVERY = 0.25  # seconds: whether there is a new look
HEARTBEAT = 15.0  # of a stream, so that whatever is between takes it for alive
PATIENCE = 30.0  # with a client that does not read all of an event
_HEAD = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class Live:
    """Everyone gets the same bytes. `run` is the task that makes them, until `stop`."""

    def __init__(self, facts: Facts, answers: Answers, stop: threading.Event) -> None:
        self._facts, self._answers, self._stop = facts, answers, stop
        self._look: Look | None = None
        self._text = ""
        self._number = 0  # of the newest event
        self._same: object = None  # what it says beside the time
        self._changed = asyncio.Condition()
        self._streams = 0

    async def run(self) -> None:
        while not self._stop.is_set():
            await self._renew()
            await asyncio.sleep(LOOK_EVERY)
        await self.wake()

    async def text(self) -> str:
        """The newest overview, as JSON."""
        await self._renew()
        return self._text

    def stream(self, admitted: Callable[[], bool]) -> ASGIApp:
        """Sends an event now and whenever the overview has changed, until the client or this process ends.

        It also ends, soon after a `wake`, when the client is no longer admitted.
        """

        async def streamed(scope: Scope, receive: Receive, send: Send) -> None:
            del scope
            if self._streams >= MOST_STREAMS:
                raise Refusal(503, f"{MOST_STREAMS} pages are open, which is the most", "close one, and try again")
            self._streams += 1
            try:
                await self._send(receive, send, lambda: self._stop.is_set() or not admitted())
            finally:
                self._streams -= 1

        return streamed

    async def wake(self) -> None:
        """Have streams end whose clients are not admitted any more."""
        async with self._changed:
            self._changed.notify_all()

    async def _send(self, receive: Receive, send: Send, ended: Callable[[], bool]) -> None:
        await self._renew()
        await send({"type": "http.response.start", "status": 200, "headers": _HEAD})
        gone = asyncio.create_task(_gone(receive))
        try:
            seen = 0
            while not ended() and not gone.done():
                seen, chunk = self._next(seen)
                message = {"type": "http.response.body", "body": chunk, "more_body": True}
                await asyncio.wait_for(send(message), PATIENCE)
                await self._wait(seen, ended, gone)
        except TimeoutError:
            return  # it does not read: uvicorn closes the connection, as the response is not whole
        finally:
            gone.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _next(self, seen: int) -> tuple[int, bytes]:
        if self._number == seen:
            return seen, b": still here\n\n"
        return self._number, f"event: overview\nid: {self._number}\ndata: {self._text}\n\n".encode()

    async def _wait(self, seen: int, ended: Callable[[], bool], gone: asyncio.Task[None]) -> None:
        """Until there is something new, the stream has to end, or it is time for a sign of life."""
        new = asyncio.create_task(self._newer(seen, ended))
        try:
            await asyncio.wait({new, gone}, timeout=HEARTBEAT, return_when=asyncio.FIRST_COMPLETED)
        finally:
            new.cancel()
            with suppress(asyncio.CancelledError):
                await new

    async def _newer(self, seen: int, ended: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._number > seen or ended())

    async def _renew(self) -> None:
        look = self._facts.newest()
        if look is self._look:
            return
        self._look = look
        tree = overview(look)
        self._text = self._answers.text(tree)
        same = tree | {"at": None}
        async with self._changed:
            if same != self._same:
                self._same, self._number = same, self._number + 1
            self._changed.notify_all()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
