"""Keys that are different and have one hash."""

from __future__ import annotations

__all__ = ["alike"]


def alike() -> tuple[bytes, bytes]:
    """A key of eight bytes and one of seven: the hash begins with the size, and takes up the bytes by exclusive or."""
    sizes = [_scrambled(8), _scrambled(7)]
    between = sizes[0] ^ sizes[1]
    word = between & 0xFF00000000000000  # so that the shorter one has no eighth byte
    return word.to_bytes(8, "little"), (word ^ between).to_bytes(8, "little")[:7]


def _scrambled(word: int) -> int:
    """The finisher of splitmix64, in plain Python."""
    mask = 2**64 - 1
    word = (word + 0x9E3779B97F4A7C15) & mask
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & mask
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & mask
    return word ^ (word >> 31)
