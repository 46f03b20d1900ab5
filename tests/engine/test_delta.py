"""``settle`` on every combination of facts, each pair judged by the rule in words."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np

from service.engine.delta import IGNORED, MEMBER, NONE, WAITING, Memory, Transition, settle
from service.engine.rules import NEVER, Rule

NOW = 100


class Facts(NamedTuple):
    state: int
    since: int
    free_at: int
    inside0: bool
    stores0: bool
    watched0: bool
    inside1: bool
    held1: bool
    watched1: bool
    stores1: bool
    ignores: bool
    once: bool
    dwell: int
    cooldown: int
    begins: bool
    restarts: bool
    silent: bool
    remains: bool


def judged(f: Facts) -> tuple[bool, bool, tuple[int, int, int]]:
    """Membership before and after, and what is remembered, of one pair."""
    if not f.watched0:
        was = False
    elif f.stores0:
        was = f.state == MEMBER
    else:
        was = f.inside0 and f.state != IGNORED
    stays = was and f.watched1 and f.held1
    spent = f.once and f.free_at == NEVER
    free_at = 0 if f.free_at == NEVER else f.free_at
    if was and not stays:
        spent, free_at = f.once, NOW + f.cooldown
    if f.cooldown == 0:
        free_at = min(free_at, NOW)  # a cooldown that is taken away is over now
    state, since, member, waited = NONE, 0, stays, free_at
    free_at = NEVER if spent else free_at if free_at > NOW else 0
    if f.watched1 and f.inside1 and not stays:
        if f.ignores if f.begins else f.state == IGNORED:
            state = IGNORED
        elif not spent:
            goes_on = f.state == WAITING and not f.restarts
            since = f.since if goes_on else NOW
            held_up = goes_on and f.silent and (f.dwell > 0 or f.cooldown > 0)
            if max(since + f.dwell, waited) <= NOW and not held_up:
                member, since, free_at = True, 0, 0
            else:
                state, free_at = WAITING, waited if goes_on else free_at
    if member and f.stores1:
        state = MEMBER
    return was, member, (state, since, free_at) if f.remains else (NONE, 0, 0)


def _possible(f: Facts) -> bool:
    """Facts that can be together: the others never come."""
    if f.inside1 and not f.held1:
        return False
    if not f.stores1 and (f.dwell or f.cooldown or f.once):
        return False  # while one that stores may do so for its ``keep`` alone
    return f.remains or not f.watched1


def test_every_combination_of_facts() -> None:
    flags = (False, True)
    axes: tuple[tuple[Any, ...], ...] = (
        (NONE, IGNORED, WAITING, MEMBER),
        (0, 90, NOW),
        (0, 95, NOW, 103, NEVER),
        *(flags for _ in range(9)),
        (0, 10, 20),
        (0, 5),
        *(flags for _ in range(4)),
    )
    facts = [f for values in product(*axes[:3]) if _head(*values) for f in _with(values, axes[3:])]
    assert len(facts) > 100_000
    columns = [np.array(column) for column in zip(*facts, strict=True)]
    f = Facts(*columns)
    settled = settle(
        Transition(
            memory=Memory(f.state.astype(np.uint8), f.since, f.free_at),
            inside0=f.inside0,
            stores0=f.stores0,
            watched0=f.watched0,
            inside1=f.inside1,
            held1=f.held1,
            watched1=f.watched1,
            rule1=Rule(f.stores1, f.ignores, f.once, f.dwell, f.cooldown),
            begins=f.begins,
            restarts=f.restarts,
            silent=f.silent,
            remains=f.remains,
            now=np.full(len(facts), NOW, dtype=np.int64),
        )
    )
    memory = zip(*(column.tolist() for column in settled.memory), strict=True)
    found = zip(settled.member0.tolist(), settled.member1.tolist(), memory, strict=True)
    for one, got in zip(facts, found, strict=True):
        assert got == judged(one), one


def _head(state: int, since: int, free_at: int) -> bool:
    return (state == WAITING) == (since > 0) and not (state == MEMBER and free_at > 0)


def _with(head: tuple[Any, ...], axes: tuple[tuple[Any, ...], ...]) -> list[Facts]:
    return [f for tail in product(*axes) if _possible(f := Facts(*head, *tail))]


def test_what_is_due_of_memory() -> None:
    rows = [
        ((NONE, 0, 0), NEVER),
        ((IGNORED, 0, 0), NEVER),
        ((MEMBER, 0, 0), NEVER),
        ((NONE, 0, NEVER), NEVER),
        ((NONE, 0, 150), 150),
        ((IGNORED, 0, 150), 150),
        ((WAITING, 90, 0), 110),
        ((WAITING, 90, 105), 110),
        ((WAITING, 90, 150), 150),
    ]
    state, since, free_at = (np.array(column) for column in zip(*(entry for entry, _ in rows), strict=True))
    n = len(rows)
    rule = Rule(np.ones(n, bool), np.zeros(n, bool), np.zeros(n, bool), np.full(n, 20), np.full(n, 60))
    assert Memory(state.astype(np.uint8), since, free_at).due(rule).tolist() == [due for _, due in rows]
