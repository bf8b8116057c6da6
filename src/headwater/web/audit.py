"""A line in the log for whatever is changed, or refused to be: who, from where, what, and what became of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import Request

from headwater.web.answers import Refusal
from headwater.web.session import Caller

__all__ = ["audit", "audited"]

logger = logging.getLogger(__name__)


def audit(request: Request, caller: Caller, what: str, outcome: str) -> None:
    """Names in `what` are quoted, so that none makes a line of its own."""
    client = request.client.host if request.client else "unknown"
    extra = {"who": str(caller), "client": client}
    logger.info("%s from %s: %s: %s", caller, client, what, outcome, extra=extra)


@contextmanager
def audited(request: Request, caller: Caller) -> Iterator[None]:
    """Note a change that is refused here, as the request spells it."""
    try:
        yield
    except Refusal as refusal:
        audit(request, caller, f"{request.method} {request.url.path[:200]!r}", f"refused: {refusal.error}")
        raise
