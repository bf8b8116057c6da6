"""The mode of a table that has a mirror, which the config cannot change."""

from __future__ import annotations

from contextlib import closing, suppress

from headwater.checks.known import Known
from headwater.config import Config
from headwater.control.wishes import another_mode, wishes
from headwater.errors import HeadwaterError
from headwater.postgres.connect import connect, translated
from headwater.source.replaced import resolved

__all__ = ["mode_problems"]


def mode_problems(config: Config, known: Known) -> list[HeadwaterError]:
    """The tables whose mirrors have another mode than the config asks for."""
    found = list[HeadwaterError]()
    if not known.groups:
        return found
    with (
        suppress(HeadwaterError),  # the source's own check reports it
        closing(connect(config.source, application_name="headwater check")) as connection,
        translated(config.source),
    ):
        for group, wanted in wishes(config, known.tables).items():
            rows = {row.oid: row for row in known.tables.get(group, [])}
            for entry, one in zip(config.groups[group].tables, resolved(connection, wanted), strict=True):
                if one.fate == "found" and (problem := another_mode(entry, rows.get(one.oid))):
                    found.append(problem)
    return found
