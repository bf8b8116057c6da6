"""Names in the source: of a group's slot and publication, and names as SQL spells them."""

from __future__ import annotations

from psycopg import sql

__all__ = ["object_name", "quoted"]


def object_name(group: str) -> str:
    """The name of a group's slot and of its publication."""
    return f"headwater_{group}"


def quoted(*names: str) -> str:
    """A name, qualified or not, as it stands in a statement."""
    return sql.Identifier(*names).as_string(None)
