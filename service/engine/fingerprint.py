"""A number for the query set as of one command offset: equal where the sets are equal.

An entry of the command log is known by its offset, so the set is known by the offsets of the entries that are
in force, and by which of them were quarantined. Each is scrambled to 48 bits (exact in a float64, which is
what metrics carry), and all are combined by exclusive or: the order in which they came does not count, and
taking one out is putting it in again. Two sets that differ have the same number once in 2**48.

Not for: an adversary; whoever writes the command log can make sets collide.
"""

from __future__ import annotations

_64 = (1 << 64) - 1
_BITS = 48


def mark(offset: int, *, quarantined: bool = False) -> int:
    """The share of one entry in the fingerprint (the finalizer of splitmix64)."""
    x = (2 * offset + quarantined + 0x9E3779B97F4A7C15) & _64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _64
    return (x ^ (x >> 31)) >> (64 - _BITS)


def text(fingerprint: int) -> str:
    """As it is shown to people and compared by them."""
    return f"{fingerprint:0{_BITS // 4}x}"
