"""`python -m bench.watchers ADDRESS PAGES`: so many open pages, and a Prometheus that scrapes every second.

It says `ready` once all have got something, ends when its standard input does, and then prints how much they got.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict, dataclass, field
from urllib.parse import urlsplit

__all__ = ["main"]

SCRAPE_EVERY = 1.0
MOST_BYTES = 1 << 24  # of an event


@dataclass(slots=True)
class Got:
    events: int = 0
    scrapes: int = 0
    scraped_bytes: int = 0
    pages: set[int] = field(default_factory=set)  # that have got an event


async def watch(address: str, pages: int) -> Got:
    got = Got()
    place = urlsplit(address)
    host, port = place.hostname or "", place.port or 0
    tasks = [asyncio.create_task(_page(host, port, number, got)) for number in range(pages)]
    tasks.append(asyncio.create_task(_scraper(host, port, got)))
    while len(got.pages) < pages or not got.scrapes:
        await asyncio.sleep(0.05)
        for task in tasks:
            if task.done():
                task.result()  # it should go on until the end
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return got


async def _page(host: str, port: int, number: int, got: Got) -> None:
    reader, writer = await _asked(host, port, "/api/v1/events")
    try:
        while line := await reader.readline():
            if line.startswith(b"data: "):
                got.events += 1
                got.pages.add(number)
    finally:
        writer.close()


async def _scraper(host: str, port: int, got: Got) -> None:
    while True:
        reader, writer = await _asked(host, port, "/metrics")
        answer = await reader.read()
        writer.close()
        assert b"headwater_state_up 1" in answer, answer[:200]
        got.scrapes += 1
        got.scraped_bytes += len(answer)
        await asyncio.sleep(SCRAPE_EVERY)


async def _asked(host: str, port: int, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(host, port, limit=MOST_BYTES)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
    return reader, writer


def main(address: str, pages: str) -> None:
    got = asdict(asyncio.run(watch(address, int(pages))))
    print(json.dumps(got | {"pages": len(got["pages"])}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
