"""Routes: which destination a row belongs to, by the value of one column."""
