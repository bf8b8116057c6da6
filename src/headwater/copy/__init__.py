"""The first copy: an exported snapshot, a table cut into ranges, each read as Arrow."""
