"""Numbers of border records: within a tenant they count up in each life of a stream.

Idea: nearly all records are of the default tenant, whose numbers are a column of the stream table (``seq``).
Those of others are few: a dictionary by row (``others``). Where a source has queries of no other tenant,
nothing here is asked whose a record is: ``tenants`` of such records is None.

Where there are several tenants, the pairs that a row of a batch changes are parted by tenant, and each part
is split into records on its own: so what a tenant is told does not depend on who else is told something.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from service.engine import kernels
from service.engine.crossings import ChangedPairs, Walked
from service.engine.effects import CROSS, ENTER, LEAVE, BorderRecords, Change, Sides
from service.engine.queryset import QuerySet
from service.engine.rules import Times
from service.engine.streams import StreamTable, occurrences
from service.index.protocol import Rows, Slots
from service.tenants import tenant_of


def next_numbers(
    table: StreamTable, queries: QuerySet, streams: Rows, tenants: Rows | None
) -> NDArray[np.int64]:
    """Numbers for one more record of each stream, in the order given, ``int64[n]``. ``tenants int32[n]``:
    whose each is; None: all of the default tenant."""
    if tenants is None:
        return _next_of_default(table, streams)
    seq = np.empty(len(streams), dtype=np.int64)
    own = tenants == 0
    seq[own] = _next_of_default(table, streams[own])
    for place in np.flatnonzero(~own).tolist():
        numbers = table.others.setdefault(int(streams[place]), {})
        tenant = queries.tenants.names[tenants[place]]
        numbers[tenant] = seq[place] = numbers.get(tenant, 0) + 1
    return seq


def _next_of_default(table: StreamTable, streams: Rows) -> NDArray[np.int64]:
    seq: NDArray[np.int64] = table.seq[streams] + occurrences(streams) + 1
    np.maximum.at(table.seq, streams, seq)
    return seq


def tenants_of_changes(queries: QuerySet, changes: Sequence[Change], places: Rows) -> Rows | None:
    """The same of some of these changes, whether their queries are still there or not. Their tenants are
    known to ``queries``. O(places log places)."""
    if not queries.tenants.are_several:
        return None
    named, where = np.unique(places, return_inverse=True)
    tenants = [queries.tenants.number(tenant_of(changes[place].query)) for place in named.tolist()]
    return np.array(tenants, dtype=np.int32)[where]


def number_borders(
    table: StreamTable, queries: QuerySet, walked: Walked, changed: ChangedPairs, ts: Times, max_ids: int
) -> BorderRecords:
    """Pairs that changed, all of them told, as numbered records in order of the rows and tenants; ``ts`` is
    by row. A row that removes a stream is the last of that stream. O(p log p)."""
    width = len(queries.tenants)
    ranks = queries.tenants.ranks_of(changed.slots)
    order = np.lexsort((changed.slots, changed.sides, ranks, changed.pairs))
    slots, sides = changed.slots[order], changed.sides[order]
    keys_of_pairs = (changed.pairs.astype(np.int64) * width + ranks)[order]
    resets = np.flatnonzero(walked.first & table.lost)
    keys_of_resets = (resets[:, np.newaxis] * width + np.arange(width)).ravel()
    keys = np.unique(np.concatenate([keys_of_pairs, keys_of_resets]))
    rows, tenants = (keys // width).astype(np.int32), queries.tenants.in_order()[keys % width]
    counts = np.searchsorted(keys_of_pairs, keys, side="right") - np.searchsorted(keys_of_pairs, keys)
    begins = np.isin(keys, keys_of_resets).astype(np.int64)
    records = -(-counts // max_ids) + begins
    for group in np.flatnonzero(counts > max_ids).tolist():
        first = int(np.searchsorted(keys_of_pairs, keys[group]))
        by_id(queries, slots, sides, slice(first, first + int(counts[group])))
    causes, tenants = np.repeat(rows, records), np.repeat(tenants, records)
    streams = walked.rows[causes]
    seq = next_numbers(table, queries, streams, tenants)
    table.seq[walked.rows[walked.verdict == kernels.REMOVES]] = 0
    return BorderRecords(
        causes=causes,
        streams=streams,
        seq=seq,
        ts=ts[causes],
        starts=starts_of(counts, records, begins, max_ids),
        slots=slots,
        sides=sides,
        tenants=tenants,
    )


def by_id(queries: QuerySet, slots: Slots, sides: Sides, place: slice) -> None:
    """Orders the pairs of one row and tenant, which fill several records, by side and id: so that where they
    are split depends on ids alone. In place; they are by side already."""
    here, there = slots[place], sides[place]
    for side in (LEAVE, ENTER, CROSS):
        chosen = np.flatnonzero(there == side)
        names = queries.ids(here[chosen])
        if names:
            here[chosen] = here[chosen][np.argsort(np.array(names))]


def starts_of(
    ids: NDArray[np.int64], records: NDArray[np.int64], resets: NDArray[np.int64], max_ids: int
) -> NDArray[np.int64]:
    """Where each record begins among the pairs, and the end. Each group has so many ids and records; a reset
    comes first and holds none."""
    first_pair = np.cumsum(ids) - ids
    first_record = np.cumsum(records) - records
    which = np.arange(int(records.sum()), dtype=np.int64) - np.repeat(first_record, records)
    full = np.maximum(which - np.repeat(resets, records), 0)
    starts = np.repeat(first_pair, records) + full * max_ids
    return np.append(starts, ids.sum()).astype(np.int64)
