"""Headwater mirrors PostgreSQL into lakehouse tables, continuously and exactly once."""

__version__ = "0.1.0"
