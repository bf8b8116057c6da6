"""Whose log a folder is: the folder has a file with its id, and the state records which id is the group's."""

from __future__ import annotations

from headwater.errors import OperatorMustAct
from headwater.state import Location

__all__ = ["strange_log"]


def strange_log(
    group: str, root: str, found: str | None, recorded: Location | None, *, copied: bool = False
) -> OperatorMustAct | None:
    """Why the folder, whose id was `found`, cannot be the group's log; None if it can.

    A folder without an id at the recorded place was deleted and may be used again; anywhere else it is another folder.
    One with the right id was moved there, unless the recorded place still has it: then it is `copied`.
    """
    if recorded is None or (found == recorded.id and not copied) or (found is None and root == recorded.place):
        return None
    there = f"the log {root!r} is another one (id {found})" if found else f"there is no log of it in {root!r}"
    if copied:
        there = f"{root!r} is a copy of it"
    back = f"set `log` back to {recorded.place!r}"
    if root == recorded.place:
        back = f"put the log with id {recorded.id} back, or delete this one, and the tables are copied again as needed"
    return OperatorMustAct(
        f"group {group!r} has its log in {recorded.place!r} (id {recorded.id}), and {there}",
        hint=f"{back}; or start over with `headwater group drop {group}`: the next `headwater run` copies the tables"
        " again",
    )
