"""The command line: one module per verb, none of which holds logic."""
