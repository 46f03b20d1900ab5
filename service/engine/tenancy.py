"""The tenants of one source, by number, and whose each slot is.

Tenants are known by numbers, 0 for the default one, which every source has; another gets one with its first
query and keeps it. A *rank* is the place of a tenant in the order in which records of one event are written.
Until another than the default one has come (``are_several``) nobody need ask whose anything is.

Not for: what a tenant may do, or how its records are numbered (``numbers``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from service.index.protocol import Rows, Slots
from service.tenants import DEFAULT_TENANT, order


class Tenancy:
    """``names`` by number. ``ranks int32[tenants]`` by number; ``at int32[capacity]`` has the number of the
    tenant of each slot, that of a slot which was given up until it is taken again."""

    def __init__(self, capacity: int) -> None:
        self.names: list[str] = [DEFAULT_TENANT]
        self.ranks: Rows = np.zeros(1, dtype=np.int32)
        self.at: Rows = np.zeros(capacity, dtype=np.int32)
        self.are_several = False
        self._numbers = {DEFAULT_TENANT: 0}
        self._enabled, self._disabled = [0], [0]

    def __len__(self) -> int:
        return len(self.names)

    def number(self, name: str) -> int:
        """The number of a tenant, which has one from now on. O(1), the first time O(tenants log tenants)."""
        number = self._numbers.setdefault(name, len(self.names))
        if number == len(self.names):
            self.names.append(name)
            self._enabled.append(0)
            self._disabled.append(0)
            place = {one: rank for rank, one in enumerate(sorted(self.names, key=order))}
            self.ranks = np.array([place[one] for one in self.names], dtype=np.int32)
            self.are_several = True
        return number

    def in_order(self) -> Rows:
        """The numbers by rank, ``int32[tenants]``."""
        return np.argsort(self.ranks).astype(np.int32)

    # ---- slots

    def grow(self) -> None:
        """Room for twice as many slots."""
        self.at = np.concatenate([self.at, np.zeros_like(self.at)])

    def put(self, slots: Sequence[int], names: Sequence[str]) -> None:
        """Slots have been taken by queries of these tenants."""
        numbers = {name: self.number(name) for name in dict.fromkeys(names)}
        self.at[slots] = [numbers[name] for name in names]

    def of(self, slots: Slots) -> Rows | None:
        """The numbers of the tenants of some slots; None: all are the default one's."""
        return self.at[slots] if self.are_several else None

    def ranks_of(self, slots: Slots) -> Rows:
        """The ranks of the tenants of some slots, ``int32[n]``."""
        ranks: Rows = self.ranks[self.at[slots]]
        return ranks

    def own(self, name: str, slots: Iterable[int]) -> list[int]:
        """Those of some slots that are a tenant's."""
        number = self._numbers.get(name, -1)
        if not self.are_several:
            return list(slots) if number == 0 else []
        return [slot for slot in slots if self.at[slot] == number]

    # ---- counting

    def count(self, slot: int, by: int, *, enabled: bool) -> None:
        """So many more queries of the tenant of a slot are registered."""
        counts = self._enabled if enabled else self._disabled
        counts[self.at[slot]] += by

    @property
    def census(self) -> dict[str, tuple[int, int]]:
        """How many queries of each tenant are enabled, and how many are not. O(tenants)."""
        counts = zip(self.names, self._enabled, self._disabled, strict=True)
        return {name: (enabled, disabled) for name, enabled, disabled in counts}

    def shares(self, slots: Slots) -> dict[str, int]:
        """How many of some slots are each tenant's; of those that have any, and of the default one."""
        if not self.are_several:
            return {DEFAULT_TENANT: len(slots)}
        counts = np.bincount(self.at[slots], minlength=len(self.names)).tolist()
        return {name: count for name, count in zip(self.names, counts, strict=True) if count}
