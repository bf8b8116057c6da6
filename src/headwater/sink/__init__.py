"""Net changes → Parquet files → one atomic lake commit that carries the position."""
