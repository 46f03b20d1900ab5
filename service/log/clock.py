"""The clock by which the logs stamp what is written to them, unless they are given another."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Wall time, ms since 1970."""
    return time.time_ns() // 1_000_000
