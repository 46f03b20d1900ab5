"""The one delta function: how membership follows from what is inside, for every cause of change.

A (stream, query) pair is *watched* while the query is registered and enabled and the stream lives. Of most
queries a watched pair is a *member* while the stream's last value is inside ``where``; nothing is remembered.
What is remembered of the others is a *state* and two times:

- IGNORED: inside since an ``initial: ignore`` query began to watch; no member before it has been outside.
- WAITING: inside, and a member when ``for`` has passed since ``since`` and the cooldown has ended.
- MEMBER: of a query that stores (``keep``, ``for``, ``cooldown``, ``once``), whose members are not told by
  where they are: it stays one while ``where`` or ``keep`` holds it.
- ``free_at``: before that time it cannot become a member again: the end of a cooldown, or when the cooldown
  was taken away. Forgotten then, but not by a wait of a silent stream, which must not end by it. NEVER after
  its once.

Every cause is one transition of the same facts. An event changes what is inside; a registration or an
enabling turns ``watched`` on, a deletion, a disabling or the removal of the stream turns it off; an update
changes rules and what is inside for many streams at once; time alone lets a wait end. So enters and leaves
alternate whatever happens.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.engine.rules import NEVER, Flags, Rule, Times

NONE, IGNORED, WAITING, MEMBER = range(4)


class Memory(NamedTuple):
    """What is remembered of n pairs: ``state uint8[n]``, ``since`` and ``free_at`` ``int64[n]`` ms, 0 where
    they say nothing."""

    state: NDArray[np.uint8]
    since: Times
    free_at: Times

    def take(self, places: NDArray[np.int64]) -> Memory:
        return Memory(self.state[places], self.since[places], self.free_at[places])

    def due(self, rule: Rule) -> Times:
        """When time alone changes what is remembered, ``int64[n]`` ms: a wait ends, or else a cooldown; NEVER
        where it does not."""
        cools = self.free_at > 0
        ends = np.maximum(self.since + rule.dwell, self.free_at)
        return np.where(self.state == WAITING, ends, np.where(cools, self.free_at, NEVER))


class Transition(NamedTuple):
    """Facts about n pairs before (0) and after (1) one change: ``bool[n]``, the memory, and two rules.

    ``inside``: ``where`` holds the stream's value; ``held1``: ``where`` or ``keep`` does. ``begins``: the
    query begins to watch the pair by this change: registration, enabling, a changed ``where``, or the first
    event of the stream. ``restarts``: waits begin anew; ``silent``: others do not end, since the stream has
    not been heard of for too long. ``remains``: the pair still exists, watched or not. ``now`` is the
    partition's time, ms: ``int64[n]``.
    """

    memory: Memory
    inside0: Flags
    stores0: Flags
    watched0: Flags
    inside1: Flags
    held1: Flags
    watched1: Flags
    rule1: Rule
    begins: Flags
    restarts: Flags
    silent: Flags
    remains: Flags
    now: Times


class Settled(NamedTuple):
    """``bool[n]``: membership before and after; and the memory after."""

    member0: Flags
    member1: Flags
    memory: Memory


def settle(t: Transition) -> Settled:
    """Membership on both sides of a change. O(n).

    A member that the new region still holds stays one, whatever ``initial``, ``for`` or a cooldown say.
    """
    state, since, free_at = t.memory
    rule = t.rule1
    member0 = t.watched0 & np.where(t.stores0, state == MEMBER, t.inside0 & (state != IGNORED))
    stays = member0 & t.watched1 & t.held1
    left = member0 & ~stays
    spent = rule.once & (left | (free_at == NEVER))
    free_at = np.where(left, t.now + rule.cooldown, np.where(free_at == NEVER, 0, free_at))
    free_at = np.where(rule.cooldown > 0, free_at, np.minimum(free_at, t.now))

    candidate = t.watched1 & t.inside1 & ~stays
    ignored1 = candidate & np.where(t.begins, rule.ignores & ~member0, state == IGNORED)
    open_ = candidate & ~ignored1 & ~spent
    waits_on = open_ & (state == WAITING) & ~t.restarts
    since = np.where(waits_on, since, t.now)
    waiting = Memory(np.where(open_, WAITING, NONE).astype(np.uint8), since, free_at)
    held_up = waits_on & t.silent & ((rule.dwell > 0) | (rule.cooldown > 0))
    enters = open_ & (waiting.due(rule) <= t.now) & ~held_up
    member1 = stays | enters

    waits = open_ & ~enters
    state1 = np.select([ignored1, waits, member1 & rule.stores], [IGNORED, WAITING, MEMBER], NONE)
    # Who waits on keeps the end of a cooldown that is over: without it, its wait would have ended long ago.
    free_at = np.where((free_at > t.now) | (waits & waits_on), free_at, 0)
    return Settled(
        member0,
        member1,
        Memory(
            np.where(t.remains, state1, NONE).astype(np.uint8),
            np.where(waits, since, 0),
            np.where(t.remains, np.where(spent, NEVER, free_at), 0),
        ),
    )
