"""The default index: any number of attributes, any mixture of boxes, changed while it is read.

Idea: new boxes go into a small *delta*, which is scanned. Beside many others they go on to a *grid*
(``fresh``), which takes them in O(1); when it has half as many as are filed, it is merged with them. The
others, and those that a grid does not take, become a *level* when the delta is full: immutable parts, each in
the structure that suits its boxes (``chooser``). Levels of like size are merged, so there are few. Removed
boxes are marked with the version from which they are gone. A reader takes one snapshot, with its version, and
never waits.

Merging large levels takes seconds. By default it is done at once, by the caller that made it due. An index
that is told to merge *aside* lets the caller file a small level only, the youngest, and leaves the others
to whoever asks for ``rebuild``: that may ``run`` on any thread while the index is read and changed, and
``adopt`` swaps it in. Whoever asks for it also has what waits in the delta filed, once that has been scanned
for so many points that filing it would have been worth it.

A move is answered from border lists as long as it crosses fewer borders than looking up both ends would cost;
else both ends are looked up. A grid has no such lists: who is asked about moves has levels alone.

Invariants: all boxes of a slot are in the delta, in the grid, or in one level. Boxes that constrain nothing
are in none of these: their slots are ``free``. Exact on float64, because every part is.

Not for: one structure on its own (the paper's are measured apart).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.answers import Collector, Keys, as_points, difference, require_one_shape
from service.index.boxes import REMOVED, Boxes, LiveSlots, living, no_boxes
from service.index.crossings import borders_of
from service.index.default.chooser import Choose, Shape, chosen, scan_ns
from service.index.default.delta import Delta
from service.index.default.fresh import Fresh, FreshPart
from service.index.default.level import Level, PartView, fresh_view
from service.index.default.part import NEVER, Part, Sparse, joined, sparse
from service.index.default.segment import meets
from service.index.kernel import kernel, reads
from service.index.protocol import Borders, Bounds, Hits, Points, Slots
from service.index.scan import scan

_DELTA = 1024
"""Boxes that wait in the delta: a scan of them costs about what a level costs to search."""
_MERGE = 2
"""A level is merged when what it is merged with is at least 1 / _MERGE of its size."""
_FRESH = 8192
"""Boxes that are filed, from which on new ones are kept in a grid. Of fewer there are two levels."""
_FRESH_SHARE = 2
"""A grid takes 1 / _FRESH_SHARE of the boxes that are filed: then both are merged."""
_FEW = 8
"""Of the boxes that may wait in the delta, so many times less go to the grid together."""
_GROWN = 8
"""Full deltas that go into the youngest level though the index merges aside: its caller files them, in a
hundredth of a second. A larger one is left to the merges, and the next begins."""
_LEAST_WAITING = 128
"""Boxes that wait and are not worth filing before the delta is full: a part costs about what a scan of them
does."""
_PATIENCE = 30_000
"""Ends that are scanned, by a point or another, in a few times the time that it takes to file a box."""
_UNPREDICTED_NS = 4000.0
"""What two look-ups may cost in structures that were asked for."""
_MOST_FAR = 16
"""Batches of far moves in a row, after which as many are looked up before lists are tried again."""


class _Snapshot(NamedTuple):
    version: int
    delta: Boxes
    free: Slots
    levels: tuple[Level, ...]
    unique: bool
    """Whether no slot has more than one box, so that none is found twice around a point."""
    parts: tuple[Part, ...]
    """Of all levels, and the fresh boxes."""
    fresh: FreshPart | None


class Rebuild:
    """Levels that are to be merged into one. ``run`` on any thread, once; then ``DefaultIndex.adopt``."""

    def __init__(
        self, levels: tuple[Level, ...], version: int, dims: int, choose: Choose, *, moves: bool
    ) -> None:
        self.levels = levels
        self.version = version
        self.level: Level | None = None
        self._dims = dims
        self._choose = choose
        self._moves = moves

    def run(self) -> None:
        """Files the boxes that lived when it was made, with their borders if moves are asked about.
        O(n log n) for its n boxes."""
        boxes = joined([level.boxes(self.version) for level in self.levels])
        level = Level.of(boxes, self._dims, self._choose)
        if self._moves:
            level.borders  # noqa: B018  (made here: whoever adopts it should not wait for it)
        self.level = level


class DefaultIndex:
    """A ``BoxIndex``; see ``protocol`` for what it takes, raises and promises, and the module.

    ``choose`` makes the parts of a level. ``delta`` is the number of boxes that may wait to be filed,
    ``fresh`` the number that are filed before others go into a grid.
    """

    def __init__(
        self,
        dims: int,
        *,
        aside: bool = False,
        delta: int = _DELTA,
        fresh: int = _FRESH,
        choose: Choose = chosen,
    ) -> None:
        self.dims = dims
        self._aside = aside
        self._most_waiting = self._next = delta
        self._least_filed = fresh
        self._grown = _GROWN * max(delta, 1)
        self._choose = choose
        self._live = LiveSlots(dims)
        self._delta = Delta(dims)
        self._fresh: Fresh | None = None
        self._around: tuple[FreshPart, Level] | None = None
        self._collector = Collector()
        self._moves = Collector()
        self._follows_moves = False
        # Hints alone, as the collectors': a stream that jumps once is likely to jump again.
        self._far_batches = self._straight = 0
        #: points for which what waits in the delta was scanned, since it was last empty
        self._scanned = 0
        self._snapshot = self._snapshot_of(0, np.empty(0, np.int32), ())

    def __len__(self) -> int:
        return len(self._live)

    @property
    def nbytes(self) -> int:
        held = self._live.nbytes + self._delta.nbytes + self._snapshot.free.nbytes
        held += self._fresh.nbytes if self._fresh is not None else 0
        return held + sum(level.nbytes for level in self._snapshot.levels)

    # ---- changes

    def insert(self, slots: Slots, lo: Bounds, hi: Bounds) -> None:
        """O(1) a box, and amortised O(1) filings of it where a grid takes it, else O(log n); aside, a
        constant number by the caller."""
        slots, lo, hi = self._live.add(slots, lo, hi)
        if len(slots) == 0:
            return
        if self._delta.boxes.size + len(slots) > self._next:
            self._pass_on(slots, lo, hi, least=self._most_waiting // 2 + 1)
            return
        self._delta.insert(slots, lo, hi)
        # One by one boxes come in 7 us each: no more is made anew than has to be.
        version, _, free, levels, unique, parts, fresh = self._snapshot
        unique = unique and self._delta.unique
        self._snapshot = _Snapshot(version, self._delta.boxes, free, levels, unique, parts, fresh)

    def _pass_on(self, slots: Slots, lo: Bounds, hi: Bounds, *, least: int) -> None:
        """Takes new boxes and all that wait: the grid gets what it takes, a level the rest if there are at
        least so many."""
        delta = self._delta
        fresh = self._grid_for(delta.boxes.size + len(slots))
        slots, lo, hi = _behind(delta.taken(), (slots, lo, hi))
        if fresh is not None:
            slots, lo, hi = fresh.insert(slots, lo, hi)
        version, _, free, levels, *_ = self._snapshot
        self._next = self._most_waiting
        self._scanned = 0
        if len(slots) >= least:
            free, levels = self._filed(slots, lo, hi)
        else:
            delta.insert(slots, lo, hi)
            if fresh is not None:
                self._next = min(len(slots) + self._most_waiting // _FEW, self._most_waiting)
        self._snapshot = self._snapshot_of(version, free, levels)
        if not self._aside:
            self._merge_at_once()

    def _grid_for(self, boxes: int) -> Fresh | None:
        """The grid, with room for so many boxes, if enough others are filed for it to be worth it."""
        filed = sum(level.living for level in self._snapshot.levels)
        if self._fresh is not None and (self._follows_moves or not self._fresh.takes(boxes)):
            self._seal()
        if self._follows_moves or filed < self._least_filed or _FRESH_SHARE * boxes > filed:
            return None
        if self._fresh is None:
            # When the next do not fit, there are enough for a merge.
            room = filed // _FRESH_SHARE + self._most_waiting
            self._fresh = Fresh(self._snapshot.parts, self.dims, room)
        return self._fresh if self._fresh.takes(boxes) else None

    def _seal(self) -> None:
        """Makes a level of the grid."""
        version, _, free, levels, *_ = self._snapshot
        levels = self._sealed(levels)
        self._snapshot = self._snapshot_of(version, free, levels)

    def _sealed(self, levels: tuple[Level, ...]) -> tuple[Level, ...]:
        """The levels with the grid, which takes no more, as the youngest."""
        fresh, self._fresh = self._fresh, None
        if fresh is None or not fresh.living:
            return levels
        level = Level.around(fresh.sealed(), self._snapshot.version, self.dims)
        if self._follows_moves:
            level.borders  # noqa: B018
        return (*levels, level)

    def remove(self, slots: Slots) -> None:
        """O(log n) a slot and level."""
        self._live.discard(slots)
        if len(slots) == 0:
            return
        snapshot = self._snapshot
        waiting = self._delta.has(slots)
        if waiting.any():
            self._delta.remove(slots[waiting])
        filed = slots[~waiting]
        version = snapshot.version
        if len(filed):
            if version == NEVER - 1:
                snapshot = self._with_young_marks()
                version = snapshot.version
            version += 1
            for level in snapshot.levels:
                level.remove(filed, version)
            if self._fresh is not None:
                self._fresh.remove(filed, version)
        free = snapshot.free
        if len(free):
            free = free[~np.isin(free, filed)]
        self._snapshot = self._snapshot_of(version, free, snapshot.levels)
        if not self._aside:
            self._merge_at_once()

    def _filed(self, slots: Slots, lo: Bounds, hi: Bounds) -> tuple[Slots, tuple[Level, ...]]:
        """The free slots and the levels with new boxes as a level, together with those not much larger."""
        version, _, free, levels, *_ = self._snapshot
        boxes, everywhere = _parted(slots, lo, hi)
        free = np.union1d(free, everywhere).astype(np.int32)
        merged, total = [boxes], len(boxes)
        kept = list(levels)
        while kept and kept[-1].living <= (self._grown if self._aside else _MERGE * total):
            level = kept.pop()
            merged.append(level.boxes(version))
            total += level.living
        if total:
            kept.append(self._level(joined(merged)))
        return free, tuple(kept)

    def _snapshot_of(self, version: int, free: Slots, levels: tuple[Level, ...]) -> _Snapshot:
        """A snapshot with the delta and the grid as they are."""
        unique = self._delta.unique and all(level.unique for level in levels)
        parts = tuple(part for level in levels for part in level.parts)
        fresh = None
        if self._fresh is not None and self._fresh.size:
            fresh = self._fresh.part
            unique, parts = unique and self._fresh.unique, (*parts, fresh)
        return _Snapshot(version, self._delta.boxes, free, levels, unique, parts, fresh)

    def _level(self, boxes: Sparse) -> Level:
        level = Level.of(boxes, self.dims, self._choose)
        if self._follows_moves:
            level.borders  # noqa: B018  (made now: the next move should not wait for it)
        return level

    def rebuild(self) -> Rebuild | None:
        """What there is to merge, if anything. Files what waits, if it has been scanned for so many points
        that it would have been worth it. Writer only."""
        waiting = self._delta.boxes
        if waiting.size >= _LEAST_WAITING and self._is_scanned_enough(waiting.size):
            self._pass_on(waiting.slots[:0], waiting.lo[:0], waiting.hi[:0], least=1)
        fresh = self._fresh
        if fresh is not None and (self._follows_moves or fresh.stale):
            self._seal()
        levels = self._snapshot.levels
        growing = self._aside and len(levels) > 0 and levels[-1].living <= self._grown
        # One that grows meanwhile would make what is made of it useless.
        last = len(levels) - growing
        for first, level in enumerate(levels):
            younger = sum(one.living for one in levels[first + 1 : last])
            if younger and level.living <= _MERGE * younger:
                return self._rebuild_of(levels[first:last])
            if 2 * level.living < level.size:
                return self._rebuild_of(levels[first : max(last, first + 1)])
        return None

    def _is_scanned_enough(self, size: int) -> bool:
        levels = self._snapshot.levels
        young = levels[-1].living if levels and levels[-1].living <= self._grown else 0
        return self._scanned * size * self.dims > _PATIENCE * (size + young)

    def _rebuild_of(self, levels: tuple[Level, ...]) -> Rebuild:
        return Rebuild(levels, self._snapshot.version, self.dims, self._choose, moves=self._follows_moves)

    def adopt(self, rebuild: Rebuild) -> None:
        """Swaps in what a rebuild has made, unless its levels have been merged since. Writer only."""
        version, _, free, levels, *_ = self._snapshot
        level, first = rebuild.level, 0
        assert level is not None, "run it first"
        while first < len(levels) and levels[first] is not rebuild.levels[0]:
            first += 1
        last = first + len(rebuild.levels)
        if levels[first:last] != rebuild.levels:
            return
        for old in rebuild.levels:
            gone = old.removed_since(rebuild.version)
            if len(gone):
                level.remove(gone, version)
        if self._follows_moves:
            level.borders  # noqa: B018
        fresh = (level,) if level.living else ()
        self._snapshot = self._snapshot_of(version, free, (*levels[:first], *fresh, *levels[last:]))

    def _merge_at_once(self) -> None:
        rebuild = self.rebuild()
        if rebuild is not None:
            rebuild.run()
            self.adopt(rebuild)

    def _with_young_marks(self) -> _Snapshot:
        """Versions are used up: everything is filed once more, and they begin again."""
        version, _, free, levels, *_ = self._snapshot
        boxes = joined([level.boxes(version) for level in self._sealed(levels)])
        return self._snapshot_of(0, free, (self._level(boxes),) if len(boxes) else ())

    # ---- answers

    def stab(self, points: Points) -> Hits:
        """O(h) for h hits, besides the parts; O(h log h) if a slot has several boxes."""
        points = _whole(as_points(points, self.dims))
        snapshot = self._snapshot
        if snapshot.delta.size:
            self._scanned += len(points)
        answer = self._collector.by_row if snapshot.unique else self._collector.hits
        return answer(lambda out: _stabbed(snapshot, points, out), len(points))

    def borders(self, before: Points, after: Points) -> Borders:
        """O(borders crossed), or as two stabs where that is less."""
        require_one_shape(before, after)
        before, after = as_points(before, self.dims), as_points(after, self.dims)
        self._follows_moves = True
        snapshot = self._snapshot
        if self._straight > 0:
            self._straight -= 1
            return self._moved(snapshot, before, after)
        if _all_somewhere(before) and _all_somewhere(after):
            far = np.zeros(len(before), np.bool_)
        else:  # that a point is nowhere, no crossed border tells
            far = _nowhere(before) | _nowhere(after)
        version, levels = snapshot.version, self._as_levels(snapshot)
        worth_ns = _two_look_ups_ns(levels)
        ends: list[int] = []

        def fill(out: Keys) -> int:
            ends.clear()
            found = 0
            for level in levels:
                room = out[found:] if found else out
                found += level.moved(before, after, version, worth_ns, far, room)
                ends.append(found)
            return found

        def answer(keys: Keys) -> Borders:
            keys = _by_slot(levels, ends, keys, before, after)
            return self._crossed(snapshot, before, after, far, keys)

        return self._moves.answered(fill, len(before), answer)

    def follow_moves(self) -> None:
        """Makes now what the first question about moves would have to wait for, and from now on with every
        level. O(n d log n)."""
        self._follows_moves = True
        self._seal()
        for level in self._snapshot.levels:
            level.borders  # noqa: B018

    def _as_levels(self, snapshot: _Snapshot) -> tuple[Level, ...]:
        """All that is filed, fresh boxes too, with borders. From the first question about moves on the next
        change files them, so what is made of them is the same till then."""
        part, known = snapshot.fresh, self._around
        if part is None:
            return snapshot.levels
        if known is None or known[0] is not part:
            self._around = known = part, Level.around(part, snapshot.version, self.dims)
        return (*snapshot.levels, known[1])

    def _crossed(
        self,
        snapshot: _Snapshot,
        before: Points,
        after: Points,
        far: NDArray[np.bool_],
        keys: Keys,
    ) -> Borders:
        """The answer, from the keys of moves that cross few borders of the levels, and of ``far`` ones from
        looking up both ends."""
        beyond = np.count_nonzero(far)
        if beyond and beyond == len(far):
            self._far_batches = min(self._far_batches + 1, _MOST_FAR)
            self._straight = self._far_batches
            return self._moved(snapshot, before, after)
        self._far_batches = 0
        if beyond:  # what an earlier level has said of them
            keys = keys[~far[keys >> 32]]
        if snapshot.delta.size:  # it has no lists: both ends are looked up in it for every row
            delta = snapshot._replace(free=snapshot.free[:0], parts=())
            keys = np.concatenate([keys, _as_keys(self._moved(delta, before, after), None)])
        if beyond:
            rows = np.flatnonzero(far)
            filed = snapshot._replace(delta=_NOTHING)
            keys = np.concatenate([keys, _as_keys(self._moved(filed, before[rows], after[rows]), rows)])
        return borders_of(keys, len(before))

    def _moved(self, snapshot: _Snapshot, before: Points, after: Points) -> Borders:
        """The borders by looking up both ends."""
        both = _whole(np.concatenate([before, after]))
        if snapshot.delta.size:
            self._scanned += len(both)
        hits = self._collector.hits(lambda out: _stabbed(snapshot, both, out), len(both))
        return difference(hits, len(before))

    def met(self, before: Points, after: Points, *, box_by_box: bool = False) -> Hits:
        """The slots whose boxes the segment from ``before[row]`` to ``after[row]`` meets though neither end
        is in one of them; ``box_by_box``: though that box has neither end, whatever the others have. A slot
        with a box that constrains nothing is never met, box by box neither: it is everywhere. An end with an
        infinite or missing attribute is on no segment of boxes that constrain it. Exact. O(borders
        crossed)."""
        require_one_shape(before, after)
        before, after = _whole(as_points(before, self.dims)), _whole(as_points(after, self.dims))
        self._follows_moves = True
        snapshot = self._snapshot
        version, delta, *_ = snapshot
        pairs: set[tuple[int, int]] = set()
        for level in self._as_levels(snapshot):
            pairs |= _met(level, before, after, version, box_by_box)
        waiting = living(delta)
        boxes, _ = _parted(delta.slots[waiting], delta.lo[waiting], delta.hi[waiting])
        if len(boxes):
            pairs |= _met(Level.of(boxes, self.dims, self._choose), before, after, 0, box_by_box)
        found = np.array(sorted(pairs), np.int32).reshape(-1, 2)
        return Hits(np.ascontiguousarray(found[:, 0]), np.ascontiguousarray(found[:, 1]))

    def views(self) -> list[PartView]:
        """What the index is made of, largest level first, the delta last; for people. O(parts)."""
        _, delta, free, levels, _, _, fresh = self._snapshot
        views = [view for level in levels for view in level.views]
        views += [fresh_view(fresh, self.dims)] if fresh is not None else []
        return [*views, *([_free_view(free)] if len(free) else []), _delta_view(delta, self.dims)]

    def holding(self, slot: int) -> list[tuple[PartView, int]]:
        """The parts, as in ``views``, that hold boxes of a slot, and how many; for people. O(delta)."""
        snapshot = self._snapshot
        found = [part for level in snapshot.levels for part in level.holding(slot, snapshot.version)]
        fresh = snapshot.fresh
        if fresh is not None:
            here = (fresh.slots == slot) & (fresh.removed_at > snapshot.version)
            if here.any():
                found.append((fresh_view(fresh, self.dims), int(np.count_nonzero(here))))
        if (snapshot.free == slot).any():
            found.append((_free_view(snapshot.free), 1))
        waiting = int(np.count_nonzero(snapshot.delta.slots[: snapshot.delta.size] == slot))
        if waiting:
            found.append((_delta_view(snapshot.delta, self.dims), waiting))
        return found

    def check(self) -> None:
        version, delta, free, levels, unique, _, fresh = self._snapshot
        self._delta.check()
        assert delta is self._delta.boxes
        assert delta.size <= self._next <= self._most_waiting
        filed = [free]
        uniques = [self._delta.unique, *(level.unique for level in levels)]
        for level in levels:
            level.check()
            filed.append(np.unique(level.boxes(version).slots))
        if self._fresh is not None:
            self._fresh.check()
            uniques.append(self._fresh.unique)
        assert fresh is (self._fresh.part if self._fresh is not None and self._fresh.size else None)
        if fresh is not None:
            filed.append(np.unique(fresh.slots[fresh.removed_at > version]))
        assert unique == all(uniques)
        slots = np.concatenate([*filed, np.unique(delta.slots[: delta.size])]).tolist()
        assert sorted(slot for slot in slots if slot != REMOVED) == self._live.named().tolist()


_NOTHING = no_boxes(0, 0)


def _free_view(free: Slots) -> PartView:
    return PartView("free", "no constraint", (), len(free), 0, free.nbytes, 0.0)


def _delta_view(delta: Boxes, dims: int) -> PartView:
    removed = delta.size - len(living(delta))
    predicted = scan_ns(Shape(delta.size, dims, dims, dims, 0.0, 0.0))
    reason = "not filed yet"
    return PartView("delta", reason, tuple(range(dims)), delta.size, removed, delta.nbytes, predicted)


def _parted(slots: Slots, lo: Bounds, hi: Bounds) -> tuple[Sparse, Slots]:
    """Boxes as those that constrain something, and the slots of the others: a slot that has one of these is
    everywhere, and its further boxes say nothing."""
    bound = ((lo != -np.inf) | (hi != np.inf)).any(axis=1)
    if bound.all():
        return sparse(slots, lo, hi), slots[:0]
    everywhere = slots[~bound]
    bound &= ~np.isin(slots, everywhere)
    return sparse(slots[bound], lo[bound], hi[bound]), everywhere


def _behind(
    first: tuple[Slots, Bounds, Bounds], more: tuple[Slots, Bounds, Bounds]
) -> tuple[Slots, Bounds, Bounds]:
    """The boxes of both."""
    if len(first[0]) == 0:
        return more
    (slots, lo, hi), (more_slots, more_lo, more_hi) = first, more
    return (
        np.concatenate([slots, more_slots]),
        np.concatenate([lo, more_lo]),
        np.concatenate([hi, more_hi]),
    )


def _nowhere(points: Points) -> NDArray[np.bool_]:
    """The rows that no box holds: those with a NaN, or with inf, which is not even in ``[-inf, inf)``."""
    somewhere: NDArray[np.bool_] = np.logical_and.reduce(points < np.inf, axis=1)
    return ~somewhere


def _whole(points: Points) -> Points:
    """The points, those that are nowhere with NaN in every attribute."""
    if _all_somewhere(points):
        return points
    points = points.copy()
    points[_nowhere(points)] = np.nan
    return points


@kernel(types.boolean(reads(types.float64, 2)))
def _all_somewhere(points):  # type: ignore[no-untyped-def]
    """Whether every attribute of every row is below inf, and no NaN. O(m d)."""
    for row in range(points.shape[0]):
        for attribute in range(points.shape[1]):
            if not points[row, attribute] < np.inf:
                return False
    return True


def _stabbed(snapshot: _Snapshot, points: Points, out: Keys) -> int:
    version, (near, lo, hi, slots, size, _), free, _, _, parts, _ = snapshot
    found = 0
    if size:
        with np.errstate(over="ignore"):  # only without the JIT does rounding to float32 warn
            found = scan(near, lo, hi, slots, 0, size, points, out)
    for part in parts:
        found += part.stab(points, version, out[found:] if found else out)
    if len(free):
        rows = np.flatnonzero(~_nowhere(points)).astype(np.int64)
        keys = (rows[:, None] << 32 | free.astype(np.int64)).ravel()
        room = out[found:]
        room[: len(keys)] = keys[: len(room)]
        found += len(keys)
    return found


def _two_look_ups_ns(levels: tuple[Level, ...]) -> float:
    """What looking up both ends of a move is predicted to cost."""
    predicted_ns = sum(level.predicted_ns for level in levels)
    return 2 * predicted_ns if predicted_ns < math.inf else _UNPREDICTED_NS


def _by_slot(levels: tuple[Level, ...], ends: list[int], keys: Keys, before: Points, after: Points) -> Keys:
    """The keys by slot, from keys by box of which those of each level end at ``ends``. Each level settles its
    own: a slot may have had several boxes where it is no more."""
    if all(level.unique for level in levels):
        return keys
    own = zip(levels, [0, *ends[:-1]], ends, strict=True)
    return np.concatenate([level.several.settled(keys[a:b], before, after) for level, a, b in own])


def _as_keys(moved: Borders, rows: NDArray[np.intp] | None) -> Keys:
    """As keys; ``rows`` are the numbers of the rows, if not 0, 1 and on."""
    numbers = moved.rows if rows is None else rows[moved.rows]
    return numbers.astype(np.int64) << 32 | moved.slots.astype(np.int64) << 1 | moved.entered


def _met(level: Level, before: Points, after: Points, version: int, box_by_box: bool) -> set[tuple[int, int]]:
    """The (row, slot) of ``DefaultIndex.met`` in one level."""
    found: set[tuple[int, int]] = set()
    for part, lists in zip(level.parts, level.borders, strict=True):
        room = 1024
        while True:
            keys, doubtful = np.empty(room, np.int64), np.empty(room, np.bool_)
            count = lists.met(before, after, part.removed_at, version, keys, doubtful)
            if count <= room:
                break
            room = count
        boxes: Sparse | None = None
        for key, unsure in zip(keys[:count].tolist(), doubtful[:count].tolist(), strict=True):
            row, box = key >> 32, key & 0xFFFFFFFF
            if unsure:
                boxes = part.boxes() if boxes is None else boxes
                entries = slice(boxes.starts[box], boxes.starts[box + 1])
                attributes = boxes.attributes[entries]
                sides = before[row][attributes], after[row][attributes], boxes.lo[entries], boxes.hi[entries]
                if not meets(zip(*(side.tolist() for side in sides), strict=True)):
                    continue
            found.add((row, int(part.slots[box])))
    several = set() if box_by_box else set(level.several.slots.tolist())
    return {
        (row, slot)
        for row, slot in found
        if slot not in several
        or not (level.several.holds(slot, before[row]) or level.several.holds(slot, after[row]))
    }
