"""Connections to any PostgreSQL: the source, the state, a lake's catalog; by SQL or by the replication protocol."""

__all__ = ["EPOCH_2000"]

EPOCH_2000 = 946_684_800_000_000  # PostgreSQL counts microseconds from 2000, everybody else from 1970
