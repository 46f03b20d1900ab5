"""The records of output topics as one tenant sees them: numbered as if there were no others.

Offsets of the log count the records of all tenants, so they tell how much others are told, and when: enough
to find out, event by event, what others' queries are. So a tenant other than the default one is shown numbers
of its own records only. They follow from the log alone, which counts whose records it has removed, and so
stay the same: after a restart, and when older records go.

The first look reads the topic once, O(records); later ones what has come since.
"""

from __future__ import annotations

import asyncio
import math
import threading
from array import array
from bisect import bisect_left
from collections.abc import Mapping
from typing import Protocol

from service.log.port import Record
from service.tenants import DEFAULT_TENANT
from service.wire import owner

#: What is looked at in one go: records are long where ids are, and many.
_AT_ONCE = 1_000
_BYTES_AT_ONCE = 8 << 20


class Reads(Protocol):
    """What is asked of a log; see ``log.port.Log``."""

    def read(self, topic: str, after: int, limit: int, most_bytes: float) -> tuple[list[Record], int]: ...

    def gone(self, topic: str) -> tuple[int, Mapping[str, int]]: ...


class _Topic:
    def __init__(self) -> None:
        self.looked_at = 0
        """How far."""
        self.offsets: dict[str, array[int]] = {}
        """Of the records of each tenant that the log still has."""


class OwnRecords:
    """For one event loop. The look at a topic goes on in portions, each on a thread that others then have;
    whoever waits for its turn has none, so requests of other kinds go on."""

    def __init__(self) -> None:
        self._turns = asyncio.Lock()
        self._lock = threading.Lock()  # a request that is given up leaves its portion to the thread
        self._topics: dict[str, _Topic] = {}

    async def read(
        self, log: Reads, topic: str, tenant: str, after: int, limit: int, most_bytes: float
    ) -> tuple[list[Record], int]:
        """A tenant's records from number ``after`` on (-N: the last N), no more once their values come to
        ``most_bytes``, their numbers as offsets, and the number to go on from."""
        found = None
        while found is None:
            async with self._turns:
                found = await asyncio.to_thread(self._look, log, topic, tenant, after, limit)
        start, wanted = found
        return await asyncio.to_thread(_page, log, topic, start, wanted, most_bytes)

    def _look(
        self, log: Reads, topic: str, tenant: str, after: int, limit: int
    ) -> tuple[int, array[int]] | None:
        """Looks at the next portion of a topic. Where there is none: the number of the first of the tenant's
        records that are wanted, and the offsets of these."""
        with self._lock:
            known = self._topics.setdefault(topic, _Topic())
            records, known.looked_at = log.read(topic, known.looked_at, _AT_ONCE, _BYTES_AT_ONCE)
            for record in records:
                whose = owner(record.value)
                if whose is not None and whose != DEFAULT_TENANT:
                    known.offsets.setdefault(whose, array("q")).append(record.offset)
            if records:
                return None
            # Afterwards: of the records from here on none has been passed over.
            begin, gone = log.gone(topic)
            for offsets in known.offsets.values():
                del offsets[: bisect_left(offsets, begin)]
            first, offsets = gone.get(tenant, 0), known.offsets.get(tenant, array("q"))
            start = max(first, after if after >= 0 else first + len(offsets) + after)
            return start, offsets[start - first : start - first + limit]


def _page(
    log: Reads, topic: str, start: int, wanted: array[int], most_bytes: float
) -> tuple[list[Record], int]:
    """The records at these offsets, whose numbers begin with ``start``, and the number to go on from."""
    records: list[Record] = []
    for number, offset in enumerate(wanted, start):
        found, _ = log.read(topic, offset, 1, math.inf)
        if found and found[0].offset == offset:  # else it has gone meanwhile, and this is another's
            records.append(found[0]._replace(offset=number))
            most_bytes -= len(found[0].value or b"")
            if most_bytes <= 0:
                return records, number + 1
    return records, start + len(wanted)
