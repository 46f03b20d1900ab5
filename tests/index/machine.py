"""Any history: a state machine drives an index and the slow twin together."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.index.slow import SlowTwin
from tests.index.worlds import (
    FLOAT_WORLD,
    QUICK,
    TINY_WORLD,
    Factory,
    World,
    cubes,
    insert_queries,
    same,
    slots,
)


def any_history(factory: Factory) -> None:
    run_state_machine_as_test(_machine(factory, TINY_WORLD), settings=QUICK)


def any_history_of_floats(factory: Factory) -> None:
    run_state_machine_as_test(_machine(factory, FLOAT_WORLD), settings=QUICK)


def _machine(factory: Factory, world: World) -> type[RuleBasedStateMachine]:
    dims = factory.dims

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.index = factory.make()
            self.twin = SlowTwin(dims)
            self.next_slot = 0

        @property
        def live(self) -> list[int]:
            return sorted(self.twin.boxes)

        @rule(queries=world.queries(dims, 6))
        def insert(self, queries: Any) -> None:
            insert_queries([self.index, self.twin], self.next_slot, queries, dims)
            self.next_slot += len(queries)

        @precondition(lambda self: self.twin.boxes)
        @rule(data=st.data(), queries=world.queries(dims, 1))
        def replace(self, data: Any, queries: Any) -> None:
            slot = data.draw(st.sampled_from(self.live))
            for each in (self.index, self.twin):
                each.remove(slots(slot))
            insert_queries([self.index, self.twin], slot, queries, dims)

        @precondition(lambda self: self.twin.boxes)
        @rule(data=st.data())
        def remove(self, data: Any) -> None:
            gone = data.draw(st.lists(st.sampled_from(self.live), min_size=1, unique=True))
            for each in (self.index, self.twin):
                each.remove(slots(*gone))

        @precondition(lambda self: self.twin.boxes)
        @rule(data=st.data())
        def refuse(self, data: Any) -> None:
            taken = data.draw(st.sampled_from(self.live))
            for call, error in (
                (
                    lambda: self.index.insert(slots(self.next_slot, taken), *cubes([(0, 1)] * 2, dims)),
                    ValueError,
                ),
                (lambda: self.index.remove(slots(taken, self.next_slot)), KeyError),
            ):
                try:
                    call()
                except error:
                    continue
                raise AssertionError(f"{error.__name__} expected")

        @rule(points=world.points(dims, 5))
        def stab(self, points: Any) -> None:
            assert same(self.index.stab(points), self.twin.stab(points))

        @rule(points=world.points(dims, 6))
        def borders(self, points: Any) -> None:
            half = len(points) // 2
            before, after = points[:half], points[half : 2 * half]
            assert same(self.index.borders(before, after), self.twin.borders(before, after))

        @rule(data=st.data())
        def stab_the_corners(self, data: Any) -> None:
            corners = [corner for boxes in self.twin.boxes.values() for box in boxes for corner in box]
            if corners:
                points = np.array(data.draw(st.lists(st.sampled_from(corners), max_size=4))).reshape(-1, dims)
                assert same(self.index.stab(points), self.twin.stab(points))

        @invariant()
        def keeps_its_invariants(self) -> None:
            self.index.check()
            assert len(self.index) == len(self.twin)

    return Machine
