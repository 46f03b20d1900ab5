"""What the queries of a source say about time and memory, in columns by slot.

``dwell`` and ``cooldown`` are ms, 0 for none. ``stores``: membership is remembered, since where the stream is
does not tell it. ``remembers``: pairs of the slot may have memory at all (``memory``); it stays set while an
earlier version of the query may have left some. ``keeps``: the query has a ``keep`` region.

Not for: the memory itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.index.protocol import Slots
from service.model import Initial, Query

Flags = NDArray[np.bool_]
Times = NDArray[np.int64]

NEVER = np.iinfo(np.int64).max


class Rule(NamedTuple):
    """The rules of n pairs: ``stores``, ``ignores``, ``once``: ``bool[n]``; the others ``int64[n]``, ms."""

    stores: Flags
    ignores: Flags
    once: Flags
    dwell: Times
    cooldown: Times

    def take(self, places: NDArray[np.int64] | NDArray[np.int32]) -> Rule:
        stores, ignores, once, dwell, cooldown = self
        return Rule(stores[places], ignores[places], once[places], dwell[places], cooldown[places])


def rule_of(queries: Sequence[Query | None]) -> Rule:
    """The rules of some queries; of None, those of a query that asks for nothing."""
    return Rule(
        stores=np.array([query is not None and query.stores for query in queries], dtype=np.bool_),
        ignores=np.array(
            [query is not None and query.initial is Initial.IGNORE for query in queries], dtype=np.bool_
        ),
        once=np.array([query is not None and query.once for query in queries], dtype=np.bool_),
        dwell=np.array([query.dwell if query else 0 for query in queries], dtype=np.int64),
        cooldown=np.array([query.cooldown if query else 0 for query in queries], dtype=np.int64),
    )


class Rules:
    """Rules by slot; see the module."""

    def __init__(self) -> None:
        self.remembers: Flags = np.zeros(16, dtype=np.bool_)
        self.keeps: Flags = np.zeros(16, dtype=np.bool_)
        #: Whether any query has ever stored membership.
        self.store = False
        self._columns = rule_of([None] * 16)
        #: No wait of any of these queries is shorter, ms. It is not raised when queries go.
        self.shortest_wait: int = NEVER

    def grow(self) -> None:
        """Doubles the room."""
        more = rule_of([None] * len(self.keeps))
        columns = (np.append(column, new) for column, new in zip(self._columns, more, strict=True))
        self._columns = Rule(*columns)
        self.remembers = np.append(self.remembers, np.zeros_like(self.remembers))
        self.keeps = np.append(self.keeps, np.zeros_like(self.keeps))

    def put(self, slots: Slots, queries: Sequence[Query]) -> None:
        """The rules of queries under their slots, each slot once."""
        rule = rule_of(queries)
        for column, values in zip(self._columns, rule, strict=True):
            column[slots] = values
        self.remembers[slots] |= rule.stores | rule.ignores
        self.keeps[slots] = [query.keep_region is not None for query in queries]
        self.store |= bool(rule.stores.any())
        for waits in (rule.dwell, rule.cooldown):
            self.shortest_wait = min(self.shortest_wait, int(waits[waits > 0].min(initial=NEVER)))

    def remember(self, slots: Iterable[int]) -> None:
        """Pairs of these slots have memory: an earlier version of their queries may have left it."""
        for slot in slots:
            self.remembers[slot] = True

    def forget(self, slot: int) -> None:
        self.remembers[slot] = False

    def of(self, slots: Slots) -> Rule:
        return self._columns.take(slots)
