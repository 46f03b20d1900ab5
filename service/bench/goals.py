"""Goals of an experiment: a figure that was reached against one that was wanted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple


class Goal(NamedTuple):
    """``reached`` should be at least ``wanted``, or at most; ``words`` say what it is the figure of."""

    words: str
    reached: float
    wanted: float
    at_most: bool = False

    @property
    def met(self) -> bool:
        return self.reached <= self.wanted if self.at_most else self.reached >= self.wanted

    def __str__(self) -> str:
        bound = "at most" if self.at_most else "at least"
        outcome = "met" if self.met else "missed"
        return f"{self.words} {_figure(self.reached)} ({bound} {_figure(self.wanted)}: {outcome})"


def all_met(goals: Iterable[Goal]) -> bool:
    return all(goal.met for goal in goals)


def in_words(goals: Iterable[Goal]) -> str:
    """One sentence about all of them."""
    return "; ".join(map(str, goals)) + "."


def combined(digests: Iterable[str]) -> str:
    """One digest of the answers of several races."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
