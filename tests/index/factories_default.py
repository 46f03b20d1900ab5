"""The default index in states that small tests would not reach: all filed, all in levels, merged aside."""

from __future__ import annotations

from service.index.default.mixed import DefaultIndex, Rebuild
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


FACTORIES = (
    Factory("default-1d", 1, lambda: DefaultIndex(1)),
    Factory("default-2d", 2, lambda: DefaultIndex(2)),
    Factory("default-filed-1d", 1, lambda: DefaultIndex(1, delta=0)),
    Factory("default-filed-2d", 2, lambda: DefaultIndex(2, delta=0)),
    Factory("default-levels-2d", 2, lambda: DefaultIndex(2, delta=3)),
    Factory("default-aside-3d", 3, lambda: MergedAside(3, aside=True, delta=2)),
)
