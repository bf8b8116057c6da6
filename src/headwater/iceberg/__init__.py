"""Apache Iceberg: so far only its types."""
