"""The compiled loops of the engine against their slow twins, over every short batch that a tiny world has."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine import kernels
from service.engine.kernels import (
    DUPLICATE,
    LATE,
    LATE_NO_BORDER,
    LATE_PROCESS,
    LATE_REJECT,
    MOVES,
    NO_TIME,
    NOTHING,
    NOWHERE,
    REJECTED,
    REMOVES,
    UNTOUCHED,
)

STREAMS, DIMS = 3, 2
MISSING = -np.inf

Point = tuple[float, ...]


class Slow:
    """The walk as a story of one stream after the other; the table is a dict of dicts."""

    def __init__(self, late_policy: int, carry: bool, stale_after: int, last_ids: int) -> None:
        self.late_policy, self.carry, self.stale_after = late_policy, carry, stale_after
        self.last_ids = last_ids
        self.living: dict[int, dict[str, Any]] = {}
        self.older = self.taken = 0
        self.rows: list[tuple[int, Point | None, Point | None, bool, bool]] = []
        """Verdict, value to match, where the stream was, whether it is new, whether it had been silent."""

    def step(self, row: int, removal: bool, ts: int | None, value: Point, id: int, clock: int) -> None:
        stream = self.living.get(row)
        if row < 0 or (removal and stream is None):
            self.rows.append((NOTHING, None, None, False, False))
            return
        if removal:
            self.rows.append((REMOVES, None, self.living.pop(row)["point"], False, False))
            return
        if stream is not None and id in stream["ids"]:
            self.rows.append((DUPLICATE, None, None, False, False))
            return
        late = stream is not None and ts is not None and ts < stream["ts"]
        if late and self.late_policy == LATE_REJECT:
            self.rows.append((REJECTED, None, None, False, False))
            return
        silent = stream is not None and clock - stream["seen"] >= self.stale_after
        first = stream is None
        self.older += late
        stream = stream or {"ts": NO_TIME, "point": None, "carried": (MISSING,) * DIMS, "ids": []}
        self.living[row] = stream
        if id and self.last_ids:
            stream["ids"] = [*stream["ids"], id][-self.last_ids :]
        stream["seen"] = clock
        if late and self.late_policy == LATE_NO_BORDER:
            self.rows.append((LATE, value, None, False, silent))
            return
        if not late:
            if self.carry:
                pairs = list(zip(value, stream["carried"], strict=True))
                self.taken += sum(new == MISSING != old for new, old in pairs)
                value = stream["carried"] = tuple(old if new == MISSING else new for new, old in pairs)
            if ts is not None:
                stream["ts"] = ts
        self.rows.append((MOVES, value, stream["point"], first, silent))
        stream["point"] = value


COORDINATE = st.sampled_from([MISSING, 0.0, 1.0])
EVENT = st.tuples(
    st.integers(-1, STREAMS - 1),
    st.sampled_from([False, False, False, True]),
    st.one_of(st.none(), st.integers(0, 4)),
    st.tuples(COORDINATE, COORDINATE),
    st.integers(0, 3),
    st.integers(0, 4),
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(EVENT, max_size=8), max_size=3),
    st.sampled_from([LATE_NO_BORDER, LATE_PROCESS, LATE_REJECT]),
    st.booleans(),
    st.sampled_from([1, 3, np.iinfo(np.int64).max]),
    st.sampled_from([0, 1, 2, 3]),
)
def test_walk(
    batches: list[list[Any]], late_policy: int, carry: bool, stale_after: int, last_ids: int
) -> None:
    slow = Slow(late_policy, carry, stale_after, last_ids)
    known, seen = np.zeros(STREAMS, np.bool_), np.zeros(STREAMS, np.int64)
    last_ts = np.full(STREAMS, NO_TIME)
    point, carried = np.full((STREAMS, DIMS), np.nan), np.full((STREAMS, DIMS), MISSING)
    recent = np.zeros((STREAMS, last_ids, 2), np.uint64)
    accepted, unsaved = np.zeros(STREAMS, np.int64), np.zeros(STREAMS, np.int64)
    scratch = np.full(STREAMS, UNTOUCHED, np.int32)
    counts = np.zeros(2, np.int64)
    now = 0
    for batch in batches:
        n = len(batch)
        clock = now + np.cumsum([step for *_, step, _ in batch], dtype=np.int64)
        now = int(clock[-1]) if n else now
        slow.rows.clear()
        for (row, removal, ts, value, _, id), at in zip(batch, clock.tolist(), strict=True):
            slow.step(row, removal, ts, value, id, at)
        points, verdict = np.empty((2 * n, DIMS)), np.empty(n, np.uint8)
        before = np.empty(n, np.int32)
        first, silent = np.empty(n, np.bool_), np.empty(n, np.bool_)
        used = kernels.walk(
            np.array([row for row, *_ in batch], np.int32),
            np.array([removal for _, removal, *_ in batch], np.bool_),
            np.array([ts or 0 for _, _, ts, *_ in batch], np.int64),
            np.array([ts is not None for _, _, ts, *_ in batch], np.bool_),
            np.array([value for *_, value, _, _ in batch], np.float64).reshape(n, DIMS),
            # Ids that differ in one of their words only.
            np.array([divmod(id, 3) for *_, id in batch], np.uint64).reshape(n, 2),
            clock, late_policy, carry, stale_after, last_ids,
            known, last_ts, seen, point, carried, recent, accepted, unsaved, scratch,
            points, verdict, before, first, silent, counts,
        )  # fmt: skip
        assert counts.tolist() == [slow.older, slow.taken]
        assert n <= used <= 2 * n
        for i, (expected, value, was, is_new, was_silent) in enumerate(slow.rows):
            assert verdict[i] == expected
            assert points[i].tolist() == list(value) if value else np.isnan(points[i]).all()
            assert before[i] == NOWHERE if was is None else points[before[i]].tolist() == list(was)
            assert (bool(first[i]), bool(silent[i])) == (is_new, was_silent)
        assert (scratch == UNTOUCHED).all()
        for row in range(STREAMS):
            assert known[row] == (row in slow.living)
            if row in slow.living:
                stream = slow.living[row]
                assert (last_ts[row], seen[row]) == (stream["ts"], stream["seen"])
                assert point[row].tolist() == list(stream["point"])
                if carry:
                    assert carried[row].tolist() == list(stream["carried"])
                held = [divmod(id, 3) for id in stream["ids"]]
                places = np.arange(accepted[row] - len(held), accepted[row]) % max(last_ids, 1)
                assert [tuple(id) for id in recent[row, places].tolist()] == held
                assert min(accepted[row], last_ids) == len(held)
                assert accepted[row] == unsaved[row]
            else:
                assert accepted[row] == unsaved[row] == 0
                assert np.isnan(point[row]).all() and last_ts[row] == NO_TIME


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.booleans()), max_size=10))
def test_number(rows: list[tuple[int, int, bool]]) -> None:
    seq = np.array([5, 0, 9], np.int64)
    expected_seq, expected = seq.tolist(), []
    for stream, count, removed in rows:
        for _ in range(count):
            expected_seq[stream] += 1
            expected.append(expected_seq[stream])
        if removed:
            expected_seq[stream] = 0
    out = np.empty(len(expected), np.int64)
    kernels.number(
        np.array([stream for stream, *_ in rows], np.int32),
        np.array([count for _, count, _ in rows], np.int64),
        np.array([REMOVES if removed else MOVES for *_, removed in rows], np.uint8),
        seq,
        out,
    )
    assert out.tolist() == expected
    assert seq.tolist() == expected_seq
