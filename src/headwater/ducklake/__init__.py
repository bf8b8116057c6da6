"""The DuckLake 1.0 catalog as a library: tables, files, snapshots, and commits written by SQL straight to it.

Start with `opening.py` (open a lake), `lake.py` (read it, commit to it) and `model.py` (the facts it speaks in).
Nothing is imported here on purpose: Spark's workers need `writing` and `deletes`, not DuckDB or libpq.
"""

__all__: list[str] = []
