"""Paying what streams are owed (``owed``): entries become numbered records.

Not for: when a portion is due (``engine``), nor bytes (``wire``).
"""

from __future__ import annotations

import numpy as np

from service.engine.effects import ENTER, LEAVE, Paid, Task
from service.engine.numbers import next_numbers, tenants_of_changes
from service.engine.owed import Entries
from service.engine.queryset import QuerySet
from service.engine.streams import StreamTable
from service.index.protocol import Rows


def pay_streams(task: Task, table: StreamTable, queries: QuerySet, rows: Rows) -> list[Paid]:
    """All that some streams are owed: to be told before anything else is told of them or moves them."""
    entries = table.owed.of(rows, table.told)
    return [pay(task, table, queries, entries)] if len(entries.rows) else []


def pay(task: Task, table: StreamTable, queries: QuerySet, entries: Entries) -> Paid:
    """Entries that were owed, numbered."""
    changes, places, streams, enters = entries
    table.touch_in_place(streams)
    tenants = tenants_of_changes(queries, changes, places)
    return Paid(
        task,
        changes,
        places,
        streams,
        seq=next_numbers(table, queries, streams, tenants),
        sides=np.where(enters, ENTER, LEAVE).astype(np.uint8),
        points=table.point[streams],
        attributes=queries.attributes,
        dictionaries=queries.dictionaries,
        tenants=tenants,
    )
