"""The records of output topics as one tenant sees them: numbered as if there were no others.

Offsets of the log count the records of all tenants, so they tell how much others are told, and when: enough
to find out, event by event, what others' queries are. So a tenant other than the default one is shown numbers
of its own records only. They follow from the log alone and stay the same.

The first look reads the topic once, O(records); later ones what has come since.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable

from service.log.port import Record
from service.wire import owner

Read = Callable[[str, int, int], tuple[list[Record], int]]
"""Reads an output topic from an offset on, so many records; see ``log.port.Log.read``."""

_AT_ONCE = 10_000


class OwnRecords:
    """Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: by topic how far it has been looked at
        self._ends: dict[str, int] = {}
        #: by topic and tenant the offsets of its records
        self._offsets: dict[tuple[str, str | None], array[int]] = {}

    def read(self, read: Read, topic: str, tenant: str, after: int, limit: int) -> tuple[list[Record], int]:
        """A tenant's records from number ``after`` on (-N: the last N), their numbers as offsets, and the
        number to go on from."""
        with self._lock:
            self._look(read, topic)
            offsets = self._offsets.get((topic, tenant), array("q"))
            start = after if after >= 0 else max(0, len(offsets) + after)
            wanted = offsets[start : start + limit]
        records = [
            found[0]._replace(offset=number)
            for number, offset in enumerate(wanted, start)
            if (found := read(topic, offset, 1)[0])
        ]
        return records, start + len(wanted)

    def _look(self, read: Read, topic: str) -> None:
        while True:
            records, end = read(topic, self._ends.get(topic, 0), _AT_ONCE)
            for record in records:
                self._offsets.setdefault((topic, owner(record.value)), array("q")).append(record.offset)
            self._ends[topic] = end
            if len(records) < _AT_ONCE:
                return
