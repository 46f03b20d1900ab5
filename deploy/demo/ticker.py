"""The ticker: enters and leaves as lines that a person can follow, a fair sample of thousands.

Every change is counted and every visit is timed; of each page of border records the changes whose query has
been shown least are printed. The whole is small enough to read, and no busy alarm hides a rare one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from rich.text import Text

LINES_A_PAGE = 3

#: Multiples of the golden ratio, modulo 1, are spread evenly: among equals no part of a page is preferred.
_SPREAD = 0.6180339887498949

_UNITS_MS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


class Change(NamedTuple):
    """One stream entering or leaving one query; ``stayed_ms`` of a leave, where the enter is known."""

    source: str
    stream: str
    query: str
    ts: int
    entered: bool
    stayed_ms: int | None


class Ticker:
    """Counts changes by source, times visits and chooses what to show. ``conditions`` by query id."""

    def __init__(self, conditions: Mapping[str, str]) -> None:
        self._conditions = conditions
        self._open: dict[tuple[str, str, str], int] = {}
        self._shown_of: Counter[str] = Counter()
        self.enters: Counter[str] = Counter()
        self.leaves: Counter[str] = Counter()

    @property
    def shown(self) -> int:
        return self._shown_of.total()

    @property
    def changes(self) -> int:
        return self.enters.total() + self.leaves.total()

    def take(self, records: Iterable[dict[str, Any]]) -> list[Text]:
        """Counts a page of border records; returns the lines to show, in order."""
        changes = [change for record in records for change in self._changes(record)]
        rarest = sorted(
            range(len(changes)), key=lambda i: (self._shown_of[changes[i].query], i * _SPREAD % 1)
        )
        chosen: list[int] = []
        for i in rarest:
            if len(chosen) < LINES_A_PAGE and changes[i].query not in {changes[j].query for j in chosen}:
                chosen.append(i)
        self._shown_of.update(changes[i].query for i in chosen)
        return [self._line(changes[i]) for i in sorted(chosen)]

    def _changes(self, record: dict[str, Any]) -> Iterable[Change]:
        source, stream, ts = record["source"], record["stream_id"], record["ts"]
        for query in record["leave"]:
            self.leaves[source] += 1
            since = self._open.pop((source, stream, query), None)
            yield Change(source, stream, query, ts, False, None if since is None else ts - since)
        for query in record["enter"]:
            self.enters[source] += 1
            self._open[source, stream, query] = ts
            yield Change(source, stream, query, ts, True, None)

    def _line(self, change: Change) -> Text:
        when = datetime.fromtimestamp(change.ts / 1000, UTC).strftime("%Y-%m-%d %H:%M")
        line = Text.assemble((when, "dim"), f"  {change.source:<8}", (f"{change.stream:<5}", "bold"))
        if change.entered:
            line.append(f" > enters {change.query:<18}", "green")
            return line.append(f" {self._conditions.get(change.query, '')}", "dim")
        stayed = "" if change.stayed_ms is None else f" after {duration(change.stayed_ms)}"
        return line.append(f" < leaves {change.query:<18}{stayed}", "red")


def duration(ms: int) -> str:
    """A span of time in its two largest units: ``1 d 8 h``, ``45 min``, ``0 s``."""
    parts: list[tuple[int, str]] = []
    for unit, size in _UNITS_MS:
        number, ms = divmod(ms, size)
        if number or parts:
            parts.append((number, unit))
    return " ".join(f"{number} {unit}" for number, unit in parts[:2] if number) or "0 s"
