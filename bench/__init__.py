"""`make bench`: the speed table of the design, measured on this machine. Both sides of a ratio run in one run."""
