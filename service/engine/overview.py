"""What the queries of a source have in common, and which of them nothing has happened to.

Not for: single queries (``catalog``), or the overlap of regions that are not equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from service.engine.queryset import QuerySet
from service.model import Kind, Query, Region


class Duplicates(NamedTuple):
    """Enabled queries of one canonical region: at least two public ids, sorted."""

    region: Region
    ids: list[str]


def duplicates(queries: Iterable[Query]) -> list[Duplicates]:
    """The groups of queries of one tenant with equal canonical regions, by first id. Any thread.
    O(bounds + n log n)."""
    groups: dict[object, list[Query]] = {}
    for query in queries:
        # Canonical, so equal regions have their conjuncts and attributes in the same order.
        key = tuple(tuple(conjunct.items()) for conjunct in query.region.conjuncts)
        groups.setdefault(key, []).append(query)
    found = [
        Duplicates(group[0].region, sorted(query.public_id for query in group))
        for group in groups.values()
        if len(group) > 1
    ]
    return sorted(found, key=lambda group: group.ids[0])


def enabled(queries: QuerySet, tenant: str) -> list[Query]:
    """The enabled queries that a tenant has on a source. O(queries)."""
    return [
        query for query in queries.queries if query is not None and query.enabled and query.tenant == tenant
    ]


class Unfired(NamedTuple):
    """Public ids in no order: of queries with ``match`` in their ``on`` that no event has matched, and of
    others that no event has carried a stream into or out of."""

    unmatched: list[str]
    uncrossed: list[str]


def unfired(queries: QuerySet, tenant: str) -> Unfired:
    """The enabled queries of a tenant that no event has fired since they were registered, enabled or given
    their region, as far back as this engine goes. O(queries)."""
    idle = [queries.queries[slot] for slot in np.flatnonzero(~queries.fired[: len(queries.queries)])]
    living = [query for query in idle if query is not None and query.enabled and query.tenant == tenant]
    return Unfired(
        [query.public_id for query in living if Kind.MATCH in query.on],
        [query.public_id for query in living if Kind.MATCH not in query.on],
    )
