"""The default index in states that small tests would not reach: all filed, all in levels, merged aside."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from service.index.default.chooser import STRUCTURES, Choice, Choose, only
from service.index.default.mixed import DefaultIndex, Rebuild
from service.index.default.part import Sparse, taken
from service.index.default.signatures import signatures
from service.index.protocol import Bounds, Slots
from tests.index.worlds import Factory


class MergedAside(DefaultIndex):
    """Begins to merge after one change and swaps in the outcome after the next."""

    _rebuild: Rebuild | None = None

    def insert(self, slots: Slots, lo: Bounds, hi: Bounds) -> None:
        super().insert(slots, lo, hi)
        self._go_on()

    def remove(self, slots: Slots) -> None:
        super().remove(slots)
        self._go_on()

    def _go_on(self) -> None:
        if self._rebuild is not None:
            self._rebuild.run()
            self.adopt(self._rebuild)
        self._rebuild = self.rebuild()


def suited(structure: str) -> Choose:
    """One structure for all boxes of a signature that it holds, scans for the others."""

    def choose(boxes: Sparse, dims: int) -> Sequence[Choice]:
        number, firsts = signatures(boxes)
        choices = []
        for one, first in enumerate(firsts.tolist()):
            fits = STRUCTURES[structure].fits(int(boxes.starts[first + 1] - boxes.starts[first]))
            own = taken(boxes, np.flatnonzero(number == one))
            choices.append(Choice(structure if fits else "scan", own, 0.0, "asked for"))
        return choices

    return choose


FACTORIES = (
    Factory("default-1d", 1, lambda: DefaultIndex(1)),
    Factory("default-2d", 2, lambda: DefaultIndex(2)),
    Factory("default-filed-1d", 1, lambda: DefaultIndex(1, delta=0)),
    Factory("default-filed-2d", 2, lambda: DefaultIndex(2, delta=0)),
    Factory("default-levels-2d", 2, lambda: DefaultIndex(2, delta=3)),
    Factory("default-windows-1d", 1, lambda: DefaultIndex(1, delta=0, choose=suited("windows"))),
    Factory("default-kd-2d", 2, lambda: DefaultIndex(2, delta=1, choose=suited("kd"))),
    Factory("default-kd-3d", 3, lambda: DefaultIndex(3, delta=0, choose=suited("kd"))),
    Factory("default-bitmaps-1d", 1, lambda: DefaultIndex(1, delta=0, choose=only("bitmaps"))),
    Factory("default-bitmaps-2d", 2, lambda: DefaultIndex(2, delta=3, choose=only("bitmaps"))),
    Factory("default-bitmaps-5d", 5, lambda: DefaultIndex(5, delta=0, choose=only("bitmaps"))),
    Factory("default-grid-1d", 1, lambda: DefaultIndex(1, delta=0, fresh=0)),
    Factory("default-grid-2d", 2, lambda: DefaultIndex(2, delta=3, fresh=0)),
    Factory("default-grid-5d", 5, lambda: DefaultIndex(5, delta=0, fresh=0)),
    Factory("default-grid-aside-3d", 3, lambda: MergedAside(3, aside=True, delta=2, fresh=4)),
    Factory("default-aside-3d", 3, lambda: MergedAside(3, aside=True, delta=2)),
)
