"""Memory and CPU of the processes on this host that capture and deliver, from Linux's /proc.

It is two numbers of one file, so it needs no library; prometheus-client reads the same file for its own process.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from headwater.status import Status
from headwater.web.exposition.metric import Metric, Sample

__all__ = ["METRICS", "OWN_METRICS", "samples"]

_PROC = Path("/proc")
_LABELS = ("stage", "group", "program")
_OF_WHICH = (
    "by `program`: `headwater` itself, `java` for Spark, `worker` for Spark's Python workers. The delivery process has"
    " no group: it delivers all of them. Absent for processes on other hosts."
)

_MEMORY = Metric(
    "headwater_process_resident_memory_bytes",
    "gauge",
    _LABELS,
    f"Resident memory of the processes that capture and deliver, {_OF_WHICH} Pages that workers share count for each.",
)
_CPU = Metric(
    "headwater_process_cpu_seconds_total",
    "counter",
    _LABELS,
    "CPU time of the processes that capture and deliver, since they were first seen.",
)
_COUNT = Metric("headwater_processes", "gauge", _LABELS, "How many processes capture and deliver on this host.")
METRICS = (_MEMORY, _CPU, _COUNT)

# What prometheus-client's collector says of the process that serves the metrics.
OWN_METRICS = (
    Metric("process_virtual_memory_bytes", "gauge", (), "Virtual memory of the process that serves the metrics."),
    Metric("process_resident_memory_bytes", "gauge", (), "Resident memory of the process that serves the metrics."),
    Metric(
        "process_start_time_seconds", "gauge", (), "When the process started that serves the metrics, in Unix time."
    ),
    Metric("process_cpu_seconds_total", "counter", (), "CPU time of the process that serves the metrics."),
    Metric("process_open_fds", "gauge", (), "Open file descriptors of the process that serves the metrics."),
    Metric(
        "process_max_fds", "gauge", (), "How many file descriptors the process that serves the metrics may have open."
    ),
)

Program = Literal["headwater", "java", "worker"]


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    name: str
    parent: int
    cpu_seconds: float
    started: int  # in ticks since the machine's start: with the pid, its identity
    resident_bytes: int


class _Root(NamedTuple):
    stage: str
    group: str


def samples(status: Status) -> Iterator[Sample]:
    roots = _roots(status)
    sums: dict[tuple[str, ...], list[float]] = {}
    for root, program, process in _found(roots, _all()) if roots else ():
        labels: tuple[str, ...] = (*root, program)
        memory = sums.setdefault(labels, [0.0, 0.0])
        memory[0] += process.resident_bytes
        memory[1] += 1
        yield _CPU.of(process.cpu_seconds, *labels, part=(process.pid, process.started))
    for labels, (resident, count) in sums.items():
        yield _MEMORY.of(resident, *labels)
        yield _COUNT.of(count, *labels)


def _roots(status: Status) -> dict[int, _Root]:
    """The processes on this host, by pid; one process delivers all groups."""
    here, found = socket.gethostname(), {}
    for group in status.groups:
        for root, part in ((_Root("capture", group.name), group.capture), (_Root("delivery", ""), group.delivery)):
            if part.state == "RUNNING" and part.host == here and part.pid is not None:
                found[part.pid] = root
    return found


def _found(roots: Mapping[int, _Root], processes: Iterable[_Process]) -> Iterator[tuple[_Root, Program, _Process]]:
    """The processes and their descendants."""
    known = {each.pid: each for each in processes}
    for process in known.values():
        above = process
        while above.pid not in roots and above.parent in known:
            above = known[above.parent]
        if above.pid in roots:
            yield roots[above.pid], _program(process, above), process


def _program(process: _Process, root: _Process) -> Program:
    return "headwater" if process is root else "java" if process.name == "java" else "worker"


def _all() -> Iterator[_Process]:
    """What runs on this host, as far as we may see it; nothing where there is no /proc."""
    with suppress(FileNotFoundError):
        for each in os.listdir(_PROC):
            if each.isdigit():
                with suppress(OSError):  # it has ended
                    yield _read(int(each))


def _read(pid: int) -> _Process:
    begin, _, rest = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")
    fields = rest.split()  # from the third on, as proc(5) counts them
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    cpu = (int(fields[11]) + int(fields[12])) / ticks
    return _Process(pid, begin.partition("(")[2], int(fields[1]), cpu, int(fields[19]), int(fields[21]) * page)
