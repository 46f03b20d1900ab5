"""State that this service cannot read, since a later one has written it or it is damaged: it must be left as
it is."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec


class UnreadableState(ValueError):
    """A record of the state of a partition is not of a version that this service can read."""


@contextmanager
def read_strictly() -> Iterator[None]:
    """What is read here of state records makes sense, or is no state that this service knows. Raises
    UnreadableState."""
    try:
        yield
    except UnreadableState:
        raise
    except (msgspec.MsgspecError, zlib.error, ValueError, LookupError) as error:
        raise UnreadableState(
            f"a state record cannot be read: {error}; if no later version has written it the log is damaged,"
            " and a copy has to be put back"
        ) from error


def check_version(key: bytes, found: int, known: int) -> None:
    """Raises UnreadableState."""
    if found > known:
        raise UnreadableState(f"state record {key!r} has version {found}; this service knows {known}")
