"""State that a later service has written: this one must leave it as it is."""

from __future__ import annotations


class NewerState(ValueError):
    """A record of the state of a partition is of a later version than this service can read."""


def check_version(key: bytes, found: int, known: int) -> None:
    """Raises NewerState."""
    if found > known:
        raise NewerState(f"state record {key!r} has version {found}; this service knows {known}")
