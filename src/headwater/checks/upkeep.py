"""What becomes of the lakes' files and snapshots, said in advance."""

from __future__ import annotations

from headwater.config import Config, DuckLake
from headwater.words import duration_text

__all__ = ["upkeep"]


def upkeep(config: Config) -> str:
    """What `run` does to keep the lakes of groups in shape, in a sentence or two."""
    maintenance = config.maintenance
    if maintenance is None:
        return (
            "maintenance is off: small files pile up, and deliveries and queries get slower, until `headwater maintain`"
            " merges them"
        )
    if maintenance.expire is not None:
        age, keep = duration_text(maintenance.expire.age.total_seconds()), maintenance.expire.keep
        stay = f", but for the newest {keep:,}" if keep > 1 else ""
        return f"snapshots of the lakes expire {age} after a newer one has replaced them{stay}"
    kept = "snapshots of the lakes never expire"
    if any(isinstance(config.lakes[group.lake], DuckLake) for group in config.groups.values()):
        kept += ": a DuckLake keeps every version of every row, and grows with each update"
    return f"{kept}; `maintenance: {{expire: 7d}}` would remove those that were replaced 7 days ago"
