"""What is remembered of (stream, query) pairs, and when the next of their waits ends.

Only pairs that say something have an entry (``delta``: a state or a ``free_at``), so queries that need no
memory cost nothing here. Entries lie by row of the stream table and are found by slot, too.

The ends of waits and of cooldowns are a heap. An end is never taken out when its wait is broken off: one
that comes up and is not what its pair says now is dropped. Slots and rows are used again only after their
pairs are forgotten.

Not for: what a change does to a pair (``delta``), nor time (``due``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.engine.delta import NONE, WAITING, Memory
from service.engine.rules import NEVER, Rule, Rules
from service.index.protocol import Rows, Slots

Entry = tuple[int, int, int]
"""``(state, since, free_at)`` of one pair."""

_NOTHING: Entry = (NONE, 0, 0)

_MANY_ENDS = 1024
"""The heap is made anew when it holds so many ends more than twice the waits and cooldowns that there are."""


def _is_timed(entry: Entry) -> bool:
    state, _, free_at = entry
    return state == WAITING or 0 < free_at < NEVER


class End(NamedTuple):
    """A wait or the cooldown of a pair ends at ``due``, ms."""

    due: int
    row: int
    slot: int


class PairMemory:
    """See the module."""

    def __init__(self) -> None:
        self._by_row: dict[int, dict[int, Entry]] = {}
        self._rows_of: defaultdict[int, set[int]] = defaultdict(set)
        self._ends: list[End] = []
        self._timed = 0

    def __len__(self) -> int:
        """How many streams have memory."""
        return len(self._by_row)

    def of_row(self, row: int) -> dict[int, Entry]:
        """The entries of a stream by slot; not to be changed."""
        return self._by_row.get(row, {})

    def among(self, rows: Rows) -> NDArray[np.bool_]:
        """Which of some streams have memory, ``bool[n]``."""
        if not self._by_row:
            return np.zeros(len(rows), dtype=np.bool_)
        return np.fromiter((row in self._by_row for row in rows.tolist()), dtype=np.bool_, count=len(rows))

    def rows_of(self, slot: int) -> Iterable[int]:
        """The streams that have memory of a query."""
        return self._rows_of.get(slot, ())

    def get(self, rows: Rows, slots: Slots) -> Memory:
        """The memory of n pairs. O(n), and nothing to speak of while there is none."""
        state, since, free_at = (
            np.zeros(len(rows), np.uint8),
            np.zeros(len(rows), np.int64),
            np.zeros(len(rows), np.int64),
        )
        if self._by_row:
            none: dict[int, Entry] = {}
            for i, (row, slot) in enumerate(zip(rows.tolist(), slots.tolist(), strict=True)):
                entry = self._by_row.get(row, none).get(slot)
                if entry is not None:
                    state[i], since[i], free_at[i] = entry
        return Memory(state, since, free_at)

    def put(
        self,
        rows: Rows,
        slots: Slots,
        before: Memory,
        after: Memory,
        rule: Rule,
        *,
        retimed: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int64]:
        """Takes over what has changed of n pairs, each there once, under their rules as they are now. Returns
        the places of those that have changed. ``retimed``: of these the rules are others than before, so a
        wait may end otherwise though it is the same. O(n)."""
        differs = (
            (before.state != after.state) | (before.since != after.since) | (before.free_at != after.free_at)
        )
        changed = np.flatnonzero(differs if retimed is None else differs | retimed)
        if not len(changed):
            return changed
        now = after.take(changed)
        due = now.due(rule.take(changed))
        for row, slot, end, *entry in zip(
            rows[changed].tolist(),
            slots[changed].tolist(),
            due.tolist(),
            *(column.tolist() for column in now),
            strict=True,
        ):
            self.set(row, slot, tuple(entry))
            if end != NEVER:
                heappush(self._ends, End(end, row, slot))
        return changed

    def restore(self, row: int, entries: dict[int, Entry]) -> None:
        """Makes these the entries of a stream; ``retime`` has to follow."""
        self.forget(row)
        for slot, entry in entries.items():
            self.set(row, slot, entry)

    def forget(self, row: int) -> None:
        """The stream is no more."""
        for slot, entry in self._by_row.pop(row, {}).items():
            self._timed -= _is_timed(entry)
            self._leave(row, slot)

    def retime(self, rules: Rules) -> None:
        """Works out all ends anew: for a table just restored, or where policies changed. O(pairs)."""
        waits = [
            (row, slot, entry)
            for row, entries in self._by_row.items()
            for slot, entry in entries.items()
            if _is_timed(entry)
        ]
        memory = Memory(
            np.array([entry[0] for _, _, entry in waits], dtype=np.uint8),
            np.array([entry[1] for _, _, entry in waits], dtype=np.int64),
            np.array([entry[2] for _, _, entry in waits], dtype=np.int64),
        )
        due = memory.due(rules.of(np.array([slot for _, slot, _ in waits], dtype=np.int32)))
        self._ends = [End(end, row, slot) for end, (row, slot, _) in zip(due.tolist(), waits, strict=True)]
        heapify(self._ends)

    @property
    def next_end(self) -> int:
        """Nothing ends before this, ms; NEVER if nothing does."""
        return self._ends[0].due if self._ends else NEVER

    def ended(self, by: int, rules: Rules) -> Iterator[End]:
        """Takes the ends up to a time, in order; some may be of waits broken off since."""
        if len(self._ends) > 2 * self._timed + _MANY_ENDS:
            self.retime(rules)
        while self._ends and self._ends[0].due <= by:
            yield heappop(self._ends)

    def set(self, row: int, slot: int, entry: Entry) -> None:
        """Makes this the entry of a pair. The end of a wait is not noted (``put`` and ``retime`` do)."""
        entries = self._by_row.setdefault(row, {})
        self._timed += _is_timed(entry) - _is_timed(entries.get(slot, _NOTHING))
        if entry != _NOTHING:
            entries[slot] = entry
            self._rows_of[slot].add(row)
            return
        if entries.pop(slot, None) is not None:
            self._leave(row, slot)
        if not entries:
            del self._by_row[row]

    def _leave(self, row: int, slot: int) -> None:
        rows = self._rows_of[slot]
        rows.discard(row)
        if not rows:
            del self._rows_of[slot]
