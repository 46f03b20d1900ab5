"""What the search for garbage leaves alone, and for how long, in processes of their own."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import gc, weakref
from service.garbage import collect_seldom

class Ring:
    def __init__(self):
        self.me = self

collect_seldom()
gc.collect()
few = gc.get_freeze_count()
held = [[] for _ in range(300_000)]
gc.collect()
much = gc.get_freeze_count()
gone = weakref.ref(Ring())
assert gone() is not None
gc.collect()
assert gone() is None, "rings are still found"
freed = weakref.ref(one := Ring.__new__(Ring))
held.append(one)
gc.collect()
del held, one
assert freed() is None, "what nobody holds goes at once"
print(few, much, gc.get_freeze_count())
"""


def _printed(program: str) -> list[int]:
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    return [int(number) for number in run.stdout.split()]


def test_what_is_in_use_and_much_is_looked_at_once() -> None:
    few, much, end = _printed(_PROGRAM)
    assert few == 0, "the modules of a small process are looked at again"
    assert much >= 300_000
    assert end < 10_000, "frozen objects are freed when nobody holds them"


_IN_USE_AT_FIRST = """
import gc, weakref
from service import garbage

class Ring:
    def __init__(self):
        self.me = self

garbage.collect_seldom()

def ring_set_aside():
    ring = Ring()
    held = [[] for _ in range(300_000)]
    gc.collect()
    return weakref.ref(ring)
"""


def test_what_comes_to_hold_itself_once_it_is_set_aside_is_found_after_a_while() -> None:
    """Either after the time, or where much has been set aside."""
    there, gone, too_much = _printed(
        _IN_USE_AT_FIRST
        + """
one = ring_set_aside()
gc.collect()
there = one() is not None
garbage._ASIDE_S = 0
gc.collect()
gone = one() is None
garbage._ASIDE_S = 3600
other = ring_set_aside()
ring_set_aside()
garbage._MOST_ASIDE = 500_000
gc.collect()
print(int(there), int(gone), int(other() is None))
"""
    )
    assert (there, gone, too_much) == (True, True, True)


def test_what_a_search_of_all_has_found_in_use_is_not_searched_again() -> None:
    first, second = _printed(
        _IN_USE_AT_FIRST
        + """
garbage._ASIDE_S = 0
held = [[] for _ in range(300_000)]
gc.collect()
gc.collect()
first = gc.get_freeze_count()
unfreeze, gc.unfreeze = gc.unfreeze, lambda: print("again")
gc.collect()
print(int(first >= 300_000), int(gc.get_freeze_count() >= 300_000))
"""
    )
    assert first and second


def test_after_a_start_anew_what_was_there_before_is_found_after_a_while() -> None:
    first, second, third = _printed(
        _IN_USE_AT_FIRST
        + """
with garbage.at_start():
    ring = Ring()
    gone = weakref.ref(ring)
    del ring
garbage._ASIDE_S = 0
gc.collect()
first = gone() is not None
with garbage.at_start():
    pass
second = gone() is not None
gc.collect()
print(int(first), int(second), int(gone() is None))
"""
    )
    assert first, "what the first one has made is kept"
    assert second, "nobody waits for a search at a start"
    assert third
