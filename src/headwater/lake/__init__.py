"""What every lake has in common: the contract with Spark's workers, and the tables and columns Headwater adds."""
