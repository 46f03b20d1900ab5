"""The one delta function: how membership follows from what is inside, for every cause of change.

A (stream, query) pair is a *member* while the query is watched (registered, enabled, the stream alive), its
region holds the stream's last value, and the pair is not *ignored*. Ignored pairs are the only memory: those
that were inside when an ``initial: ignore`` query began to watch, until they have been outside once.

Every cause is one transition of the same five facts. An event changes ``inside``; a registration or an
enabling turns ``watched`` on, a deletion, a disabling or the removal of the stream turns it off; an update
changes ``inside`` for many streams at once. So enters and leaves alternate whatever happens.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]


class Transition(NamedTuple):
    """Facts about n pairs, ``bool[n]`` each, before (0) and after (1) one change.

    ``begins``: the query begins to watch the pair by this change: registration, enabling, a changed region,
    or the first event of the stream. ``ignores``: the query has ``initial: ignore``.
    """

    inside0: Flags
    ignored0: Flags
    watched0: Flags
    inside1: Flags
    watched1: Flags
    begins: Flags
    ignores: Flags


class Settled(NamedTuple):
    """``bool[n]`` each: membership before and after, and the memory after."""

    member0: Flags
    member1: Flags
    ignored1: Flags


def settle(t: Transition) -> Settled:
    """Membership on both sides of a change. O(n).

    A member that the new region still holds stays one, whatever ``initial`` says.
    """
    member0 = t.watched0 & t.inside0 & ~t.ignored0
    begins_ignored = t.begins & t.ignores & ~member0
    still_ignored = t.ignored0 & ~t.begins
    inside1 = t.watched1 & t.inside1
    ignored1 = inside1 & (begins_ignored | still_ignored)
    return Settled(member0, inside1 & ~ignored1, ignored1)
