"""The page, the API and the metrics of a running service."""
