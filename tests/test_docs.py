"""What the documentation says, the code does: docs that drift fail here."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from headwater import errors
from headwater.cli import cli
from headwater.config import Config
from headwater.failpoints import FAILPOINTS
from headwater.state.rows import TableState
from headwater.types import lake_type

ROOT = Path(__file__).parents[1]
DOCS = {path.name: path.read_text() for path in (ROOT / "docs").glob("*.md")}
README = (ROOT / "README.md").read_text()
SOURCE = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))


@pytest.mark.parametrize("command", [name for name, each in cli.commands.items() if not each.hidden])
def test_command_is_explained_to_operators(command: str) -> None:
    assert f"`headwater {command}" in DOCS["operations.md"]


@pytest.mark.parametrize(
    "name", [n for n, e in cli.commands.items() if not e.hidden and not isinstance(e, click.Group)]
)
def test_every_option_of_a_command_has_help(name: str) -> None:
    for parameter in cli.commands[name].params:
        assert not isinstance(parameter, click.Option) or parameter.help, f"{name}: {parameter.name}"


def test_every_key_of_the_config_is_explained() -> None:
    schema = Config.model_json_schema(by_alias=True)
    keys = set(schema["properties"])
    for name in ("DuckLake", "Group", "Flush", "Spark"):
        keys |= set(schema["$defs"][name]["properties"])
    missing = [key for key in keys if not re.search(rf"`[^`]*\b{key}\b[^`]*`", DOCS["configuration.md"])]
    assert missing == []


@pytest.mark.parametrize("state", TableState.__args__)  # type: ignore[attr-defined]
def test_table_state_is_explained_to_operators(state: str) -> None:
    assert f"| `{state}` |" in DOCS["operations.md"]


@pytest.mark.parametrize("code", sorted({getattr(errors, name)("").exit_code for name in errors.__all__}))
def test_exit_code_is_explained_to_operators(code: int) -> None:
    assert re.search(rf"^\| {code} \|", DOCS["operations.md"], re.MULTILINE)


def _documented_errors() -> list[str]:
    table = DOCS["operations.md"].split("## Errors, and what to do")[1].split("\n## ")[0]
    return re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE)


@pytest.mark.parametrize("message", _documented_errors())
def test_documented_error_is_one_the_program_can_say(message: str) -> None:
    """The fixed words between the values stand in the source, in this order."""
    words = [re.escape(part.strip()) for part in re.split(r"…|\bN\b|\bM\b|'replica'", message) if len(part.strip()) > 3]
    flat = re.sub(r'"\s*\n\s*f?"', "", SOURCE)  # strings that go on in the next line
    assert re.search(".{0,160}?".join(words), flat, re.DOTALL), message


@pytest.mark.parametrize(
    ("oid", "typmod", "ducklake"),
    [
        (21, -1, "int16"),
        (23, -1, "int32"),
        (20, -1, "int64"),
        (16, -1, "boolean"),
        (700, -1, "float32"),
        (701, -1, "float64"),
        (25, -1, "varchar"),
        (1042, 14, "varchar"),
        (1082, -1, "date"),
        (1083, -1, "time"),
        (1114, -1, "timestamp"),
        (1184, -1, "timestamptz"),
        (2950, -1, "uuid"),
        (17, -1, "blob"),
        (114, -1, "json"),
        (3802, -1, "json"),
        (869, -1, "varchar"),
    ],
)
def test_types_are_documented_as_they_are_mapped(oid: int, typmod: int, ducklake: str) -> None:
    kind = lake_type(oid, typmod)
    assert kind.ducklake == ducklake
    rows = [line for line in DOCS["types.md"].splitlines() if f"`{ducklake}`" in line]
    assert any(f"`{kind.pg}" in line or kind.pg == "other" for line in rows)


def test_every_failpoint_is_hit_somewhere() -> None:
    assert [name for name in FAILPOINTS if f'failpoints.hit("{name}")' not in SOURCE] == []


@pytest.mark.parametrize("words", ["make demo", "make test", "headwater verify", "Java 17"])
def test_the_readme_shows_the_way_in(words: str) -> None:
    assert words in README


@pytest.mark.parametrize("link", re.findall(r"\]\(((?!http)[^)#]+)\)", README))
def test_links_of_the_readme_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()
