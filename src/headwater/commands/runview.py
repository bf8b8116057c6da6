"""What `headwater run` shows on a terminal: groups and tables, routes, the last deliveries, and what is wrong."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headwater.commands.live import facts, listing, panel, state_text
from headwater.commands.statusview import how_far
from headwater.state import DeliveryRow
from headwater.status import GroupStatus, RouteStatus, Status, TableStatus
from headwater.words import counted, duration_text, short_duration

__all__ = ["DELIVERIES", "Rates", "RunLook", "page"]

DELIVERIES, PROBLEMS = 5, 5  # that are shown
WINDOW = 5.0  # seconds over which changes are counted
FRAME = 4  # lines around the parts of the page
TITLES = 3  # lines of a group beside those of its tables
FEWEST = 3  # tables of a group, however low the terminal is

Changes = Mapping[tuple[str, str], float]  # a second, by group and table


@dataclass(frozen=True, slots=True)
class RunLook:
    """One look at everything."""

    elapsed: float
    log: str  # the file
    said: str = ""  # by the supervisor, last
    stopping: bool = False
    status: Status | None = None  # None: nothing is known yet
    rates: Changes = field(default_factory=dict)
    deliveries: Sequence[DeliveryRow] = ()  # the newest first
    problem: str | None = None  # why there is nothing newer

    @property
    def problems(self) -> list[str]:
        """What is not as it should be; a group that is just starting is."""
        found = [self.problem] if self.problem else []
        if self.status is not None:
            begun = tuple(each for each in self.status.groups if each.state != "STARTING")
            found += replace(self.status, groups=begun).problems
        return found

    @property
    def headline(self) -> str:
        if self.stopping:
            return "stopping"
        if self.status is None or any(each.state == "STARTING" for each in self.status.groups):
            return "starting"
        return counted(len(self.problems), "problem") if self.problems else "mirroring"


class Rates:
    """Changes a second of each table, over the last looks."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[tuple[str, str], int]]] = deque()

    def of(self, at: float, status: Status) -> Changes:
        now = {(group.name, each.table): _changes(each) for group in status.groups for each in group.tables}
        self._seen.append((at, now))
        while len(self._seen) > 2 and at - self._seen[1][0] >= WINDOW:
            self._seen.popleft()
        since, before = self._seen[0]
        passed = max(at - since, 0.001)
        # A copy begins its counts anew.
        return {table: max(0, total - before.get(table, total)) / passed for table, total in now.items()}


def _changes(table: TableStatus) -> int:
    return table.copied_rows + table.inserted + table.updated + table.deleted


def page(look: RunLook, height: int) -> RenderableType:
    """The look as a panel that is about as high as the terminal."""
    above: list[Table | Text] = [*_known(look), *_problems(look)]
    below: list[Table | Text] = [*_routes(look), *_deliveries(look, height // 8), _footer(look)]
    groups = look.status.groups if look.status else ()
    room = height - FRAME - sum(_lines(part) + 1 for part in (*above, *below))
    most = max(FEWEST, room // len(groups) - TITLES) if groups else 0
    return panel(look.headline, look.elapsed, [*above, *(_group(each, look.rates, most) for each in groups), *below])


def _lines(part: Table | Text) -> int:
    return part.row_count + part.show_header if isinstance(part, Table) else part.plain.count("\n") + 1


def _known(look: RunLook) -> Iterator[Table]:
    if look.status is None:
        return
    rows = [("page", each) for each in look.status.servers]
    if look.status.source_lsn is not None:
        rows.append(("source", f"WAL at {look.status.source_lsn}"))
    if rows:
        yield facts(rows)


def _group(group: GroupStatus, rates: Changes, most: int) -> RenderableType:
    title = Text.assemble(f"{group.name} → {group.lake}: ", state_text(group.state), f", {how_far(group)}")
    if not group.tables:
        return title
    troubled = sorted(group.tables, key=lambda each: each.state == "STREAMING")  # else in their order
    shown = troubled if len(troubled) <= most else troubled[: most - 1]
    lines: list[tuple[str | Text, ...]] = [_line(each, rates.get((group.name, each.table), 0.0)) for each in shown]
    if more := troubled[len(shown) :]:
        lines.append((f"and {len(more):,} more: headwater status", "", "", "", ""))
    titles = ("table", "state", "rows", "changes/s", "lag")
    return Group(title, listing(titles, lines, right=titles[2:]))


def _line(table: TableStatus, rate: float) -> tuple[str | Text, ...]:
    lag = "" if table.lag_seconds is None else short_duration(table.lag_seconds)
    rows = table.copied_rows if table.state == "SNAPSHOT" else table.rows
    return table.table, state_text(table.state, _share(table)), f"{rows:,}", f"{rate:,.0f}", lag


def _share(table: TableStatus) -> str:
    """How far its copy is."""
    if table.state != "SNAPSHOT" or not table.copy_total:
        return ""
    return f" {min(1.0, table.copied_rows / table.copy_total):.0%}"


def _routes(look: RunLook) -> Iterator[Text]:
    if look.status is not None and look.status.routes:
        yield Text("\n").join(map(_route, look.status.routes))


def _route(route: RouteStatus) -> Text:
    counts = Counter(each.status for each in route.destinations).most_common()
    parts = [Text.assemble(f"{number:,} ", state_text(status)) for status, number in counts]
    return Text.assemble(f"route {route.name}: ", Text(", ").join(parts) if parts else "no destinations yet")


def _deliveries(look: RunLook, most: int) -> Iterator[Table]:
    if look.deliveries and most:
        titles = ("delivered", "group", "source at", "rows", "lag", "waited", "took")
        lines = map(_delivery, look.deliveries[: min(most, DELIVERIES)])
        yield listing(titles, lines, right=titles[4:])


def _delivery(row: DeliveryRow) -> tuple[str, ...]:
    took = row.phases.fold + row.phases.locate + row.phases.write + row.phases.commit
    rows = f"+{row.inserted:,} ~{row.updated:,} -{row.deleted:,} in {counted(row.tables, 'table')}"
    spent = (duration_text(row.lag_seconds), duration_text(row.phases.wait), f"{took:.2f} s")
    return f"{row.at.astimezone():%H:%M:%S}", row.group, str(row.position), rows, *spent


def _problems(look: RunLook) -> Iterator[Text]:
    if not (problems := look.problems):
        return
    shown = [Text(each.partition("\n")[0], style="bold red") for each in problems[:PROBLEMS]]
    if len(problems) > PROBLEMS:
        shown.append(Text(f"and {len(problems) - PROBLEMS:,} more: headwater status"))
    yield Text("\n").join(shown)


def _footer(look: RunLook) -> Text:
    said = f"{look.said}\n" if look.said else ""
    return Text(f"{said}Ctrl-C stops · log: {look.log}", style="dim")
