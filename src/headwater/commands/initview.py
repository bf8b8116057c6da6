"""A config file for what `headwater init` found, with comments, and what to do next."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Collection, Iterator
from pathlib import Path

import yaml

from headwater.change import TableName
from headwater.checks.candidates import Candidates, Obstacle
from headwater.config import DEFAULT_FILE
from headwater.config.starting import GivenLake, GivenSource, group_name
from headwater.words import counted

__all__ = ["next_steps", "starter"]

_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./:@%?=&-]*")
_NAMED_AT_MOST = 3  # tables that share a reason; of more, the number
_WIDTH = 110

_FILE = """\
# Written by `headwater init`. `headwater check` says whether it can run as it is, `headwater config schema` and the
# documentation what else it may say. ${{NAME}} stands for a variable of the environment.

# The database to mirror. {password}
source: {source}

# Captured changes wait here until the lake has them: a folder, or s3://bucket/prefix.
log: ./data/log

lakes:
  main:
    # The catalog: sqlite:///FILE (sqlite:////FILE if the path is absolute) or postgresql://user@host/database?schema=name
    ducklake: {catalog}
    # The data files: a folder, or s3://bucket/prefix
    data_path: {data_path}

groups:
  # The tables of a group share a replication slot, and each delivery is one snapshot of the lake with all of them.
  {group}:
    lake: main
    # flush: {{interval: 2s, rows: 500000}}  # deliver after this time, or when this many changes wait
    # A pattern, as public.*, is all tables that match and can be mirrored, also those that are created later.
    tables:{tables}

# The page at http://127.0.0.1:8080/ shows how everything is while `headwater run` runs. Its buttons, and any other host
# than this machine, need a token: {{host: 0.0.0.0, port: 8080, token: "${{NAME}}"}}
server: on
"""


def starter(found: Candidates, source: GivenSource, lake: GivenLake) -> str:
    """The file. It has no password, only the names of variables."""
    return _FILE.format(
        password=_about_password("PGPASSWORD" in source.variables),
        source=_quoted(source.url, variables=source.variables),
        catalog=_quoted(lake.catalog, variables=lake.variables),
        data_path=_quoted(lake.data_path),
        group=_quoted(group_name(found.database)),
        tables="".join(f"\n      {line}" for line in _tables(found)),
    )


def next_steps(found: Candidates, file: Path, variables: Collection[str]) -> str:
    """What was written, and what to type next."""
    mirrored = sum(not each.obstacles for each in found.tables)
    others = len(found.tables) - mirrored
    rest = f"; {counted(others, 'table')} left out, with the reason" if others else ""
    command = "headwater" if file == DEFAULT_FILE else f"headwater -c {shlex.quote(str(file))}"
    steps = [f"export {name}=...  # the file does not have it" for name in variables]
    if not mirrored:
        steps.append(f"edit {file}  # no table can be mirrored as it is")
    if unreadable := sum(not each.readable for each in found.tables):
        may = "may not be read by this role yet"
        steps.append(f"{command} check --sql  # a script for a DBA: {counted(unreadable, 'table')} {may}")
    steps += [f"{command} check  # can it run? every problem at once", f"{command} run", f"{command} status --watch"]
    return "\n".join(
        [f"wrote {file}: {counted(mirrored, 'table')} to mirror{rest}", "next:", *(f"  {step}" for step in steps)]
    )


def _about_password(given: bool) -> str:
    if given:
        return "Its password is not in this file: set PGPASSWORD."
    return "If it needs a password, set PGPASSWORD, or write it to ~/.pgpass."


def _tables(found: Candidates) -> Iterator[str]:
    wanted = [each.table for each in found.tables if not each.obstacles]
    yield from (f"- {_quoted(str(table))}" for table in wanted)
    if not wanted:
        yield "[]"
    reasons: dict[tuple[Obstacle, ...], list[TableName]] = {}
    for each in found.tables:
        if each.obstacles:
            reasons.setdefault(each.obstacles, []).append(each.table)
    if reasons:
        yield "# Not mirrored:"
    for obstacles, tables in reasons.items():
        for obstacle in obstacles:
            yield from _comment(f"- {_names(tables)}: {obstacle.reason}")
            if obstacle.hint:
                yield from _comment(f"  hint: {obstacle.hint}")


def _names(tables: list[TableName]) -> str:
    if len(tables) <= _NAMED_AT_MOST:
        return ", ".join(map(str, tables))
    return f"{tables[0]} and {counted(len(tables) - 1, 'more', 'more')}"


def _comment(text: str) -> list[str]:
    """In one line or more, whatever characters a name may have."""
    shown = "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    return textwrap.wrap(
        shown, _WIDTH, initial_indent="# ", subsequent_indent=f"# {indent}", break_long_words=False,
        break_on_hyphens=False, drop_whitespace=True,
    )  # fmt: skip


def _quoted(text: str, variables: Collection[str] = ()) -> str:
    """A YAML scalar that is read as this text, but for these variables."""
    if _PLAIN.fullmatch(text) and yaml.safe_load(text) == text:
        return text
    named = "|".join(map(re.escape, variables)) or "(?!)"
    unmeant = re.compile(rf"\$(?=\{{)(?!\{{(?:{named})\}})")  # it only looks like a variable
    if text.isprintable() and not unmeant.search(text):
        return "'" + text.replace("'", "''") + "'"
    quoted = "".join(letter if letter.isprintable() and letter not in '"\\' else _escaped(letter) for letter in text)
    return '"' + unmeant.sub(r"\\x24", quoted) + '"'


def _escaped(letter: str) -> str:
    return f"\\U{ord(letter):08x}"
