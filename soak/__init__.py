"""Run long, break things on purpose, and prove at the end that nothing is missing."""
