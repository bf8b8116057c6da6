"""The changes of a DuckLake table, whoever wrote it, between two snapshots: planned from its catalog, read in Spark."""
