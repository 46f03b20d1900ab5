"""What the search for garbage leaves alone, in a process of its own."""

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


def test_what_is_in_use_and_much_is_looked_at_once() -> None:
    run = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    few, much, end = map(int, run.stdout.split())
    assert few == 0, "the modules of a small process are looked at again"
    assert much >= 300_000
    assert end < 10_000, "frozen objects are freed when nobody holds them"
