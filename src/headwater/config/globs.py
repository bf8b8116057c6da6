"""Names of tables with wildcards."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from headwater.change import TableName

__all__ = ["WITHOUT_WILDCARD", "WITH_WILDCARD", "TablePattern", "has_wildcard", "lake_schema"]

# Of a name as the file writes it, also in its JSON schema: in double quotes, a wildcard stands for itself.
WITH_WILDCARD = r'^([^"*?]|"[^"]*")*[*?]'
WITHOUT_WILDCARD = r'^([^"*?]|"[^"]*")*$'
_PARTS = re.compile(r'"((?:[^"]|"")+)"|([^."]+)')


@dataclass(frozen=True, slots=True)
class TablePattern:
    """`schema.name`, in which `*` stands for any characters and `?` for one; in double quotes they do not."""

    text: str
    schema: re.Pattern[str] = field(repr=False, compare=False)
    name: re.Pattern[str] = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: str) -> TablePattern:
        """ValueError if it is no name of tables; without a schema it is `public`, as for a single table."""
        TableName.parse(text)
        *schema, name = (_regex(*part) for part in _PARTS.findall(text))
        return cls(text, schema[0] if schema else re.compile("public"), name)

    def matches(self, table: TableName) -> bool:
        return bool(self.schema.fullmatch(table.schema) and self.name.fullmatch(table.name))

    def __str__(self) -> str:
        return self.text


def has_wildcard(text: str) -> bool:
    """Whether it names tables by a pattern."""
    return re.search(WITH_WILDCARD, text) is not None


def lake_schema(text: str) -> str:
    """The schema of `schema.*`: where the tables of a pattern land, under their own names."""
    schema, _, name = text.rpartition(".")
    if name != "*" or not schema or has_wildcard(schema):
        raise ValueError(f"not a schema for the tables of a pattern: {text!r} (write raw.*; each keeps its own name)")
    return TableName.parse(text).schema


def _regex(quoted: str, plain: str) -> re.Pattern[str]:
    if quoted:
        return re.compile(re.escape(quoted.replace('""', '"')))
    wild = {"*": ".*", "?": "."}
    return re.compile("".join(wild.get(letter) or re.escape(letter) for letter in plain), re.DOTALL)
