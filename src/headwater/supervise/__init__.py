"""Processes: start, watch, back off, drain."""
