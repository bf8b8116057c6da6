"""What the documentation says, the code does: docs that drift fail here."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import pytest
from pyiceberg.catalog import CatalogType
from rich.console import Console
from rich.live import Live
from rich.text import Text
from tools.screenshots import drawn, screens

from headwater import errors
from headwater.change import Column
from headwater.commands.cli import cli
from headwater.config import Config, FromTable, FromTemplate, Iceberg
from headwater.ducklake.evolution import promotable
from headwater.ducklake.types import ducklake_type
from headwater.failpoints import FAILPOINTS
from headwater.iceberg.types import field_type
from headwater.lake import history, quarantine
from headwater.sink.addresses import lake_addresses
from headwater.sink.iceberg.columns import promotable as promotable_in_iceberg
from headwater.sink.iceberg.standing import COMMIT_LSN, COMMIT_TS, POSITION, SINCE
from headwater.state.functions import Function
from headwater.state.interface import FUNCTIONS
from headwater.state.rows import TableState
from headwater.status import (
    DestinationStatus,
    GroupStatus,
    InstanceStatus,
    PartStatus,
    RouteStatus,
    Status,
    TableMoment,
    TableStatus,
)
from headwater.status.routes import DestinationHealth
from headwater.supervise import crash
from headwater.values.types import LakeType, lake_type

ROOT = Path(__file__).parents[1]
DOCS = {path.name: path.read_text() for path in (ROOT / "docs").glob("*.md")}
README = (ROOT / "README.md").read_text()
SOURCE = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
STUMBLES = "told|somebody|nobody|since ever|its own words|amiss"


@pytest.mark.parametrize("command", [name for name, each in cli.commands.items() if not each.hidden])
def test_command_is_explained_to_operators(command: str) -> None:
    assert f"`headwater {command}" in DOCS["operations.md"]


@pytest.mark.parametrize(
    "name", [n for n, e in cli.commands.items() if not e.hidden and not isinstance(e, click.Group)]
)
def test_every_option_of_a_command_has_help(name: str) -> None:
    for parameter in cli.commands[name].params:
        assert not isinstance(parameter, click.Option) or parameter.help, f"{name}: {parameter.name}"


@pytest.mark.parametrize("name", [n for n, e in cli.commands.items() if not e.hidden])
def test_every_option_of_a_command_is_explained_to_operators(name: str) -> None:
    command = cli.commands[name]
    each = command.commands.values() if isinstance(command, click.Group) else [command]
    rows = "\n".join(line for line in DOCS["operations.md"].splitlines() if line.startswith(f"| `headwater {name}"))
    common = {parameter.name for parameter in cli.params}  # -c and the like, which every command takes
    options = [option for one in each for option in one.params if isinstance(option, click.Option)]
    assert [option.opts[0] for option in options if option.name not in common and option.opts[0] not in rows] == []


@pytest.mark.parametrize("function", [each for each in FUNCTIONS if each.callers], ids=lambda each: each.name)
def test_every_function_in_sql_is_explained_with_its_arguments(function: Function) -> None:
    names = ", ".join(each.split()[0] for each in function.arguments.split(", "))
    rows = [cells[0] for cells in _table_under("sql.md", "| function | what it asks for |")]
    assert f"`{function.name}({names})`" in ", ".join(rows)


def test_every_key_of_the_config_is_explained() -> None:
    schema = Config.model_json_schema(by_alias=True)
    keys = set(schema["properties"])
    kinds = {name: kind for name, kind in schema["$defs"].items() if name not in ("Iceberg", "Server")}
    for kind in kinds.values():
        keys |= set((kind["anyOf"][1] if "anyOf" in kind else kind)["properties"])
    missing = [key for key in keys if not re.search(rf"`[^`]*\b{key}\b[^`]*`", DOCS["configuration.md"])]
    assert missing == []


@pytest.mark.parametrize("state", TableState.__args__)  # type: ignore[attr-defined]
def test_table_state_is_explained_to_operators(state: str) -> None:
    assert f"| `{state}` |" in DOCS["operations.md"]


@pytest.mark.parametrize("status", DestinationHealth.__args__)  # type: ignore[attr-defined]
def test_status_of_a_destination_is_explained_to_operators(status: str) -> None:
    assert f"| `{status}` |" in DOCS["operations.md"]


@pytest.mark.parametrize("code", sorted({crash.BUG, *(getattr(errors, name)("").exit_code for name in errors.__all__)}))
def test_exit_code_is_explained_to_operators(code: int) -> None:
    assert re.search(rf"^\| {code} \|", DOCS["operations.md"], re.MULTILINE)


MESSAGES = [
    message
    for line in DOCS["errors.md"].splitlines()
    if line.startswith("| `")
    for message in re.findall(r"`(.+?)`", line.split(" | ")[0])
]


@pytest.mark.parametrize("message", MESSAGES)
def test_documented_error_is_one_the_program_can_say(message: str) -> None:
    """The fixed words between the values stand in the source, in this order."""
    words = [re.escape(part.strip()) for part in re.split(r"…|\bN\b|\bM\b|'replica'", message) if len(part.strip()) > 3]
    flat = re.sub(r'"\s*\n\s*f?"', "", SOURCE)  # strings that go on in the next line
    assert re.search(".{0,160}?".join(words), flat, re.DOTALL), message


def _table_under(document: str, header: str) -> list[list[str]]:
    """The rows of the table that begins with this header, cell by cell."""
    rows = DOCS[document].split(f"{header}\n")[1].split("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


PROOFS = {  # a failure in an Iceberg lake, by the words that its row begins with, and the tests that exercise it
    "delivery is killed between": ("proof/test_killed_anywhere.py", "test_a_delivery_into_iceberg_killed_at"),
    "delivery is killed after values": ("proof/test_killed_anywhere.py", "test_a_delivery_into_iceberg_killed_at"),
    "delivery is killed amid a swap": ("proof/test_killed_anywhere.py", "test_a_swap_of_names_killed_at_its_step"),
    "delivery is killed after a copy": (
        "sink/test_iceberg_maintenance.py",
        "test_a_mirror_that_a_copy_replaces_goes_though_the_process_dies_before_it_is_dropped",
    ),
    "another client commits": (
        "sink/test_iceberg.py",
        "test_rows_that_another_client_appends_meanwhile_are_no_obstacle_and_rows_that_it_moves_are",
    ),
    "another client expires": (
        "sink/test_iceberg.py",
        "test_the_position_survives_the_expiry_of_our_snapshots_by_another_client",
    ),
    "maintenance meets": (
        "sink/test_iceberg_maintenance.py",
        "test_a_delivery_while_files_are_merged_keeps_its_changes_and_its_position",
    ),
    "maintenance is killed": (
        "flow/test_maintain.py",
        "test_maintenance_that_was_killed_leaves_a_right_table_and_nothing_that_stays",
    ),
}


DUCKLAKE_PROOFS = {  # the same for DuckLake
    "maintenance meets": (
        "sink/test_ducklake_maintenance.py",
        "test_a_delivery_while_files_are_merged_keeps_its_changes_and_its_position",
    ),
    "maintenance is killed": (
        "sink/test_ducklake_maintenance.py",
        "test_maintenance_that_was_killed_leaves_a_right_table_and_nothing_that_stays",
    ),
    "snapshots would expire": (
        "supervise/test_maintaining.py",
        "test_snapshots_from_which_routes_read_on_and_those_that_verify_reads_are_kept",
    ),
}


ROUTE_PROOFS = {  # the same for routes
    "a poll is killed": ("route/test_route_crash.py", "test_a_poll_that_is_killed_heals"),
    "a seed is killed": ("route/test_route_crash.py", "test_a_seed_that_is_killed_heals"),
    "a destination's lake is unreachable": (
        "route/test_route_faults.py",
        "test_a_broken_destination_leaves_the_others_alone_and_comes_back",
    ),
    "a destination's catalog hangs": (
        "route/test_route_hangs.py",
        "test_others_go_on_while_another_client_holds_the_catalog_of_one",
    ),
    "snapshots of the source expire": (
        "route/test_turns.py",
        "test_snapshots_that_expired_before_they_were_read_cause_a_new_seed",
    ),
    "a destination's lake is restored": (
        "route/test_route_crash.py",
        "test_a_lake_that_was_restored_from_a_backup_is_brought_up_again",
    ),
    "another client drops": (
        "route/test_route_faults.py",
        "test_a_table_that_another_client_dropped_in_the_destination_is_seeded_again",
    ),
    "the source's table is dropped": (
        "route/test_turns.py",
        "test_a_source_table_that_was_made_anew_seeds_all_destinations_again",
    ),
    "two processes": ("route/test_route_faults.py", "test_a_destination_that_another_process_has_is_left_alone"),
}


GENERAL_PROOFS = {  # and what may fail whatever the lake is
    "capture is killed": ("capture/test_capture_crash.py", "test_capture_killed_at_a_step_loses_and_doubles_nothing"),
    "delivery or Spark's JVM is killed": ("proof/test_run.py", "test_a_killed_jvm_is_replaced"),
    "a Spark task fails": ("flow/test_isolate.py", "test_a_worker_that_is_killed"),
    "everything is killed": (
        "proof/test_run.py",
        "test_everything_killed_under_load_goes_on_and_verify_agrees_while_writes_go_on",
    ),
    "the source restarts or": ("proof/test_run.py", "test_a_restart_of_the_source_is_survived"),
    "the source fails over to": (
        "proof/test_failover.py",
        "test_a_failover_that_loses_nothing_goes_unnoticed_by_the_lake",
    ),
    "the source fails over during": (
        "proof/test_failover.py",
        "test_a_failover_in_the_middle_of_a_copy_costs_no_more_than_another_one",
    ),
    "the source restarts during a copy": ("proof/test_faults.py", "test_a_copy_outlives"),
    "the source refuses the login": (
        "capture/test_capture.py",
        "test_a_login_that_is_refused_is_reported_and_tried_until_it_works_again",
    ),
    "the disk of the log": ("flow/test_full_disk.py", "test_capture_waits_for_space_in_the_log_and_says_so"),
    "the disk of the lake": (
        "flow/test_full_disk.py",
        "test_a_delivery_that_finds_no_space_in_the_lake_is_made_again_when_there_is",
    ),
    "the lake's object store": (
        "proof/test_faults.py",
        "test_an_object_store_that_is_away_holds_up_deliveries_and_not_capture",
    ),
    "the lake's catalog": ("proof/test_run.py", "test_a_catalog_that_is_away_holds_up_its_own_group_only"),
    "the log reaches": (
        "capture/test_full_log.py",
        "test_capture_waits_while_the_log_is_full_and_says_so_again_and_again_and_then_all_is_there",
    ),
    "a table is paused until": (
        "flow/test_room.py",
        "test_a_paused_table_is_given_up_when_the_log_is_full_and_copied_after_it_is_resumed",
    ),
    "a transaction is larger": (
        "capture/test_full_log.py",
        "test_a_transaction_larger_than_the_log_gets_through_once_the_rest_is_delivered",
    ),
    "the answer to a commit is lost": ("proof/test_killed_anywhere.py", "test_a_delivery_killed_at"),
    "another client commits": (
        "flow/test_conflicts.py",
        "test_what_moves_the_rows_we_found_is_a_conflict_and_the_next_try_is_right",
    ),
    "another client takes the name": (
        "sink/test_iceberg_maintenance.py",
        "test_a_copy_whose_name_another_client_has_taken_leaves_no_file",
    ),
    "another client changes rows": ("verify/test_compare.py", "test_missing_extra_and_doubled_rows_are_reported_apart"),
    "the slot is dropped": ("capture/test_capture.py", "test_a_slot_that_another_client_moved_is_refused"),
    "another client alters our publication": (
        "capture/test_watch.py",
        "test_a_publication_that_no_longer_sends_a_table_ends_capture",
    ),
    "the state is lost": ("source/test_slots.py", "test_a_slot_that_another_client_made_is_not_adopted"),
    "the URL leads to another cluster": ("capture/test_capture.py", "test_another_cluster_is_refused"),
    "the config is copied": (
        "test_checks.py",
        "test_a_config_that_was_copied_elsewhere_is_refused_and_the_first_goes_on",
    ),
    "segments of the log": (
        "flow/test_gaps.py",
        "test_only_tables_with_changes_in_the_segments_that_are_gone_are_copied_again",
    ),
    "the lake, or data files of it": (
        "flow/test_groups.py",
        "test_files_of_a_lake_that_are_gone_are_found_and_their_tables_copied_again_when_asked",
    ),
    "two `headwater run`": ("proof/test_run.py", "test_a_second_run_on_the_same_groups_is_refused"),
    "the run that has the groups ends": (
        "proof/test_control.py",
        "test_a_standby_takes_over_when_the_first_run_ends_however_it_ends",
    ),
}


@pytest.mark.parametrize(
    ("what", "proofs"),
    [("", GENERAL_PROOFS), ("Iceberg: ", PROOFS), ("DuckLake: ", DUCKLAKE_PROOFS), ("Route: ", ROUTE_PROOFS)],
)
def test_every_failure_that_is_documented_has_its_test(what: str, proofs: dict[str, tuple[str, str]]) -> None:
    header = "| what happens | what Headwater does | what you see |"
    rows = [row for row, *_ in _table_under("guarantees.md", header) if _of_lake(row) == what]
    begins = [f"{what}{each}" for each in proofs]
    assert [[row.startswith(each) for each in begins].count(True) for row in rows] == [1] * len(proofs)
    for file, name in proofs.values():
        assert f"def {name}(" in (Path(__file__).parent / file).read_text()


def _of_lake(row: str) -> str:
    return next((each for each in ("Iceberg: ", "DuckLake: ", "Route: ") if row.startswith(each)), "")


TYPES = {
    "smallint": (21, -1),
    "integer": (23, -1),
    "bigint": (20, -1),
    "oid": (26, -1),
    "real": (700, -1),
    "double precision": (701, -1),
    "text": (25, -1),
    "date": (1082, -1),
    "timestamp": (1114, -1),
    "numeric": (1700, -1),
}


def _lake_type(spelled: str) -> LakeType:
    digits = re.fullmatch(r"numeric\((\d+),(\d+)\)", spelled)
    oid, typmod = (1700, (int(digits[1]) << 16 | int(digits[2])) + 4) if digits else TYPES[spelled]
    return lake_type(Column("c", oid, typmod, key=False), None)


FOLLOWED = _table_under("schema-changes.md", "| was | is now | DuckLake | Iceberg |")


@pytest.mark.parametrize(("was", "now", "ducklake", "iceberg"), FOLLOWED)
def test_a_change_of_type_is_followed_as_documented(was: str, now: str, ducklake: str, iceberg: str) -> None:
    done = {True: "follows", False: "copies again"}
    old, new = _lake_type(was.strip("`")), _lake_type(now.strip("`"))
    assert ducklake == done[promotable(ducklake_type(old), ducklake_type(new))]
    was_field, now_field = field_type(old, iter(())), field_type(new, iter(()))
    assert iceberg == done[was_field == now_field or promotable_in_iceberg(was_field, now_field)]


def test_every_iceberg_catalog_of_the_documentation_is_one_that_the_config_takes(tmp_path: Path) -> None:
    (lakes,) = re.findall(r"## Iceberg\n.*?```yaml\n(.*?)```", DOCS["configuration.md"], re.DOTALL)
    file = tmp_path / "headwater.yaml"
    file.write_text(
        f"source: postgresql://app@db/shop\nlog: ./log\n{lakes}groups: {{shop: {{lake: file, tables: [t]}}}}\n"
    )
    names = ("LAKE_PASSWORD", "CATALOG_CLIENT_ID", "CATALOG_CLIENT_SECRET")
    config = Config.load(file, dict.fromkeys(names, "s3cret-enough"))
    addresses = lake_addresses(config, {})
    assert addresses.keys() == {"file", "sql", "rest", "glue", "hive"}
    assert not any("s3cret-enough" in str(each) for each in addresses.values())
    kinds = {each.properties["type"] for each in config.lakes.values() if isinstance(each, Iceberg)}
    assert kinds == {"sql", "rest", "glue", "hive"} <= {each.value for each in CatalogType}


def test_the_routes_of_the_documentation_are_ones_that_the_config_takes(tmp_path: Path) -> None:
    (example,) = re.findall(r"## Routes\n.*?```yaml\n(.*?)```", DOCS["configuration.md"], re.DOTALL)
    file = tmp_path / "headwater.yaml"
    file.write_text(f"source: postgresql://app@db/shop\nlog: ./log\n{example}")
    config = Config.load(file, {"LAKE_PASSWORD": "s3cret"})
    assert {type(route.to) for route in config.routes.values()} == {tuple, FromTable, FromTemplate}


@pytest.mark.parametrize("name", [POSITION, SINCE, COMMIT_LSN, COMMIT_TS])
def test_what_the_summary_of_a_snapshot_says_is_explained(name: str) -> None:
    assert f"`{name}`" in DOCS["operations.md"]


def test_every_column_of_a_history_is_explained() -> None:
    shown = [
        name
        for cells in _table_under("guarantees.md", "| column | meaning |")
        for name in re.findall(r"`(_\w+)`", cells[0])
    ]
    assert shown == list(history.COLUMNS)


def test_every_column_of_the_quarantine_is_explained() -> None:
    text = DOCS["operations.md"].split("## Quarantine")[1].split("\n## ")[0]
    assert [name for name in quarantine.FIELDS if f"`{name}`" not in text] == []
    assert f"`{quarantine.NAME}`" in text


def test_every_field_of_the_status_is_explained() -> None:
    fields = {
        "field": {"healthy", "problems", *_fields(Status)},
        "field of a group": _fields(GroupStatus),
        "field of `capture` and `delivery`": _fields(PartStatus),
        "field of a table": _fields(TableStatus),
        "field of a table at an LSN": _fields(TableMoment),
        "field of a route": _fields(RouteStatus),
        "field of an instance": _fields(InstanceStatus),
        "field of a destination": _fields(DestinationStatus),
    }
    for heading, names in fields.items():
        rows = _table_under("operations.md", f"| {heading} | meaning |")
        assert {name for cells in rows for name in re.findall(r"`(\w+)`", cells[0])} == names


def _fields(kind: type[Any]) -> set[str]:
    return {each.name for each in dataclasses.fields(kind)}


def test_every_failpoint_is_hit_somewhere() -> None:
    assert [name for name in FAILPOINTS if f'failpoints.hit("{name}"' not in SOURCE] == []


@pytest.mark.parametrize(
    "words", ["make demo", "make test", "pip install", "headwater run", "headwater verify", "Java 17"]
)
def test_the_readme_shows_the_way_in(words: str) -> None:
    assert words in README


@pytest.mark.parametrize("page", sorted(DOCS.keys() - {"README.md"}))
def test_the_index_and_the_readme_lead_to_every_page(page: str) -> None:
    assert f"({page})" in DOCS["README.md"]
    assert f"(docs/{page})" in README


@pytest.mark.parametrize("page", [*sorted(DOCS), "../README.md", "../CONTRIBUTING.md", "../CHANGELOG.md"])
def test_the_english_is_plain(page: str) -> None:
    """Words that a native reader stumbles over."""
    text = re.sub(r"`[^`]*`", "", (ROOT / "docs" / page).read_text())
    assert re.findall(rf"\b(?:{STUMBLES}|tells)\b", text, re.IGNORECASE) == []


@pytest.mark.parametrize("folder", ["src", "tests", "soak", "bench", "tools"])
def test_the_english_of_the_code_is_plain(folder: str) -> None:
    """Messages, comments and the names of tests."""
    files = {path for path in (ROOT / folder).rglob("*.py") if path != Path(__file__)}
    word = re.compile(rf"(?<![a-z])(?:{STUMBLES})(?![a-z])", re.IGNORECASE)
    found = {path.name: word.findall(path.read_text()) for path in files}
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize("image", sorted((ROOT / "docs" / "images").glob("*.svg")), ids=lambda each: each.name)
def test_a_picture_loads_nothing_from_another_host(image: Path) -> None:
    picture = image.read_text()
    ElementTree.fromstring(picture)
    assert re.findall(r"https?://[^\"' )]+", picture) == ["http://www.w3.org/2000/svg"]


def test_a_screenshot_shows_what_a_terminal_shows_between_two_drawings() -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=40)
    print("before", file=written)
    with Live(console=console, auto_refresh=False) as live:
        for number in (1, 2):
            live.update(Text(f"frame {number}\nof two", style="green"), refresh=True)
    print("after", file=written)
    shown = [Text.from_ansi(each).plain for each in screens(written.getvalue().replace("\n", "\r\n"))]
    assert "before\nframe 1\nof two" in shown
    assert shown[-1] == "before\nframe 2\nof two\nafter"
    assert ">frame&#160;2<" in drawn(shown[-1], "title")


def test_every_package_is_shown_to_contributors() -> None:
    shown = (ROOT / "CONTRIBUTING.md").read_text().split("## Where things are")[1].split("\n## ")[0]
    packages = [path.parent.name for path in (ROOT / "src" / "headwater").glob("*/__init__.py")]
    assert [name for name in packages if f"`{name}`" not in shown] == []


def test_the_glossary_has_ten_words() -> None:
    glossary = (ROOT / "CONTRIBUTING.md").read_text().split("## Glossary")[1].split("\n## ")[0]
    assert len(re.findall(r"^\| \*\*", glossary, re.MULTILINE)) == 10


LINKS = [
    (page, link)
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"))
    for link in re.findall(r"\]\(((?!http)[^)]+)\)", page.read_text())
]


@pytest.mark.parametrize(("page", "link"), LINKS, ids=lambda each: each.name if isinstance(each, Path) else each)
def test_a_link_leads_somewhere(page: Path, link: str) -> None:
    file, _, part = link.partition("#")
    there = page.parent / file if file else page
    assert there.exists()
    if part:
        headings = re.findall(r"^#+ (.+)$", there.read_text(), re.MULTILINE)
        assert part in [re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings]
