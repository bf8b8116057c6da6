"""Which of the processes that share a route this one is, and how others know that it runs."""

from __future__ import annotations

import hashlib

from headwater.config import Config, HashInstance
from headwater.state.routes import RouteId

__all__ = ["instance_name", "owner_of"]


def instance_name(config: Config) -> str:
    """What the state knows this instance by."""
    instance = config.instance
    if instance is None:
        return "all"
    if isinstance(instance, HashInstance):
        return f"{instance.ordinal} of {instance.total}"
    return "list " + hashlib.sha256(repr(sorted(instance.values)).encode()).hexdigest()[:8]


def owner_of(route: RouteId) -> str:
    """The lock that the process holds which delivers a route: by it, others know that it runs."""
    return f"route:{route.name}:{route.instance}"
