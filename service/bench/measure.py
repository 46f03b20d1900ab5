"""How time is taken: contenders in one process, in turns, on one question, with answers that are compared.

Idea: a shared machine drifts, so contenders take turns and the best of the rounds counts; what differs then
is the contender and not the minute. An answer that is wrong is not fast, so every answer is digested, and
contenders that disagree are an error and not a row of a table.

Invariants: nothing but the call is inside of the timing (no digest, no garbage collection, no conversion of a
peer's ids into ours: see ``Deferred``). Before each of its turns every contender is called once untimed,
unless that takes long: what others have left in the cache is not its cost, however often it is called.

Not for: memory (``memory``), workloads, or how a result is shown.
"""

from __future__ import annotations

import gc
import hashlib
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

from service.index.protocol import Borders, Hits, Points

SHORTEST_S = 1e-3
"""A timing shorter than this is mostly noise: the call is repeated until it takes as long."""

_MOST_CALLS = 1 << 20

_LONG_S = 0.1
"""A call of this length reads more than a cache holds, so it is not called before its turn."""


class Batches(NamedTuple):
    """Answers about consecutive batches of ``size`` rows each; rows count from 0 in every batch."""

    size: int
    answers: Sequence[Hits | Borders]


class Deferred(NamedTuple):
    """An answer in a form of the contender's own; ``convert`` brings it into ours, outside of the timing."""

    convert: Callable[[], Hits | Borders | Batches]


Answer: TypeAlias = Hits | Borders | Batches | Deferred | bytes
Contender: TypeAlias = Callable[[], Answer]


class Timing(NamedTuple):
    """``best_s`` and ``median_s``: seconds a call over the rounds. ``digest``: of the answer, hexadecimal."""

    best_s: float
    median_s: float
    digest: str


class Disagreement(AssertionError):
    """Two contenders gave different answers."""


def race(
    contenders: Mapping[str, Contender],
    *,
    repeats: int = 5,
    warmup: int = 1,
    oracle: Contender | None = None,
) -> Mapping[str, Timing]:
    """Times every contender ``repeats`` times, in turns, after ``warmup`` calls (at least one). ``oracle`` is
    asked once, and all must answer as it does: a contender that is alone agrees with itself, right or wrong.

    Raises ValueError without contenders or rounds, and Disagreement, which names who differs from the first
    contender (or from the oracle) and where, unless all answers are equal.
    """
    if not contenders or repeats < 1:
        raise ValueError("a race needs a contender and a round")
    known = {} if oracle is None else {"the oracle": oracle()}
    digest = agreed(known | {name: call() for name, call in contenders.items()})
    with _no_garbage_collection():
        for _ in range(warmup - 1):
            for call in contenders.values():
                call()
        calls = {name: _calls_a_round(call) for name, call in contenders.items()}
        taken: dict[str, list[float]] = {name: [] for name in contenders}
        short = {name: _seconds(call, 1) < _LONG_S for name, call in contenders.items()}
        for _ in range(repeats):
            for name, call in contenders.items():
                if short[name]:
                    call()
                taken[name].append(_seconds(call, calls[name]))
    return {name: Timing(min(all_s), statistics.median(all_s), digest) for name, all_s in taken.items()}


def batches(stab: Callable[[Points], Hits], points: Points, size: int) -> Contender:
    """A contender that asks about points ``float64[m, d]``, ``size`` at a time; they are cut before."""
    parts = [np.ascontiguousarray(points[first : first + size]) for first in range(0, len(points), size)]
    return lambda: Batches(size, [stab(part) for part in parts])


def border_batches(
    borders: Callable[[Points, Points], Borders], before: Points, after: Points, size: int
) -> Contender:
    """As ``batches``, for the borders between ``before[row]`` and ``after[row]``."""
    parts = [
        (
            np.ascontiguousarray(before[first : first + size]),
            np.ascontiguousarray(after[first : first + size]),
        )
        for first in range(0, len(before), size)
    ]
    return lambda: Batches(size, [borders(was, now) for was, now in parts])


def digest_of(answer: Answer) -> str:
    """The sha256 of an answer; the same for every order in which its rows and slots may come."""
    return _digest(_canonical(answer))


def machine() -> Mapping[str, str]:
    """What was measured on: processor, cores, memory, versions."""
    return {
        "cpu": _cpu_model(),
        "cores": str(os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
    }


def _seconds(call: Contender, calls: int) -> float:
    """Seconds a call, over ``calls`` of them in a row."""
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def _calls_a_round(call: Contender) -> int:
    """How many calls take ``SHORTEST_S``."""
    once = _seconds(call, 1)
    if once < _LONG_S:
        # Whatever else the machine did meanwhile makes a call seem long, never short.
        once = min(once, *(_seconds(call, 1) for _ in range(9)))
    return min(max(math.ceil(SHORTEST_S / max(once, 1e-9)), 1), _MOST_CALLS)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Canonical(NamedTuple):
    """An answer as sorted int64 keys ``row << 32 | slot << 1 | entered``, or as the bytes that it was."""

    keys: NDArray[np.int64]
    raw: bytes


def _canonical(answer: Answer) -> _Canonical:
    if isinstance(answer, Deferred):
        answer = answer.convert()
    if isinstance(answer, bytes):
        return _Canonical(np.empty(0, np.int64), answer)
    if isinstance(answer, Batches):
        parts = [_keys(part, number * answer.size) for number, part in enumerate(answer.answers)]
        keys = np.concatenate([np.empty(0, np.int64), *parts])
    else:
        keys = _keys(answer, 0)
    return _Canonical(np.sort(keys), b"")


def _keys(answer: Hits | Borders, first_row: int) -> NDArray[np.int64]:
    entered = answer.entered if isinstance(answer, Borders) else False
    return (answer.rows.astype(np.int64) + first_row) << 32 | answer.slots.astype(np.int64) << 1 | entered


def _digest(canonical: _Canonical) -> str:
    text = hashlib.sha256(canonical.raw)
    text.update(canonical.keys.astype("<i8").tobytes())
    return text.hexdigest()


def agreed(answers: Mapping[str, Answer]) -> str:
    """The digest that all answers have; Disagreement, which names who differs from the first, if they have
    not."""
    (first, answer), *others = answers.items()
    expected = _canonical(answer)
    wrong = []
    for name, other in others:
        found = _canonical(other)
        if _digest(found) != _digest(expected):
            wrong.append(f"{name} differs from {first}: {_difference(found, expected)}")
    if wrong:
        raise Disagreement("; ".join(wrong))
    return _digest(expected)


def _difference(found: _Canonical, expected: _Canonical) -> str:
    """The first difference, in words."""
    if found.raw != expected.raw:
        length = min(len(found.raw), len(expected.raw))
        same = (found.raw[i] == expected.raw[i] for i in range(length))
        at = next((i for i, equal in enumerate(same) if not equal), length)
        return f"from byte {at} of {len(found.raw)} (expected {len(expected.raw)})"
    keys = np.union1d(found.keys, expected.keys)
    given, wanted = _times(keys, found.keys), _times(keys, expected.keys)
    at = int(np.argmax(given != wanted))
    key = int(keys[at])
    side = " (entered)" if key & 1 else ""
    slot = key >> 1 & 0x7FFFFFFF
    return (
        f"row {key >> 32} has slot {slot}{side} {given[at]} times, expected {wanted[at]}"
        f" ({len(found.keys)} against {len(expected.keys)} in all)"
    )


def _times(keys: NDArray[np.int64], among: NDArray[np.int64]) -> NDArray[np.intp]:
    """How often each of the keys is among sorted ones."""
    return np.searchsorted(among, keys, "right") - np.searchsorted(among, keys, "left")


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
