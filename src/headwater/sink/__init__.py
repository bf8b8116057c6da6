"""The last stage: what was merged lands in a lake, in one commit that carries the position."""
