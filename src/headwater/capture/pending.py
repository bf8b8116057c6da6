"""Does a slot hold changes that have not been read yet? Asked without reading them."""

from __future__ import annotations

from contextlib import closing

import psycopg

from headwater.change import Lsn
from headwater.errors import OperatorMustAct
from headwater.postgres.connect import connect, translated

__all__ = ["has_pending_changes"]

# The kinds of messages, and of a commit its place: a transaction may have millions of messages.
_PEEK = """
    SELECT DISTINCT substring(data, 1, CASE get_byte(data, 0) WHEN ascii('C') THEN 10 ELSE 1 END)
    FROM pg_logical_slot_peek_binary_changes(%s, %s, 1, 'proto_version', '1', 'publication_names', %s)
"""


def has_pending_changes(url: str, slot: str, publication: str, before: Lsn) -> bool | None:
    """Does the slot hold a change of the publication's tables that was committed before this position?

    None: another client is reading it. Looks at the first transaction only: it is the earliest. OperatorMustAct if the
    slot, or what it needs, is gone.
    """
    with closing(connect(url, application_name="headwater verify")) as connection, translated(url):
        try:
            messages = [bytes(row[0]) for row in connection.execute(_PEEK, (slot, before, f'"{publication}"'))]
        except psycopg.errors.ObjectInUse:
            return None
        except (psycopg.errors.UndefinedObject, psycopg.errors.ObjectNotInPrerequisiteState) as error:
            message = f"slot {slot!r} cannot be read: {error.diag.message_primary}"
            raise OperatorMustAct(message, hint="`headwater check` says what is left to do") from error
    commits = (int.from_bytes(message[2:10]) for message in messages if message[:1] == b"C")
    changed = any(message[:1] in (b"I", b"U", b"D", b"T") for message in messages)
    return changed and any(commit < before.value for commit in commits)
