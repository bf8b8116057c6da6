"""Values: which lake type carries a PostgreSQL type, and PostgreSQL's text decoded into Arrow by column."""
