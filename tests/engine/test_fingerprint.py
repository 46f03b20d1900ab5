"""One number for the query set: it says the same of equal sets, and whether a compacted log still has one."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from service.engine.catalog import Catalog
from service.engine.fingerprint import mark, text
from service.language import Limits

Log = list[tuple[int, str, dict[str, Any]]]


def history(seed: int, count: int = 25) -> Log:
    """Offsets with holes, keys and bodies of a command log."""
    rng = random.Random(seed)
    body = {"v": 1, "op": "source", "name": "s", "source": {"attributes": {"x": "number"}}}
    log: Log = [(0, "source:s:", body)]
    offset = 0
    for _ in range(count):
        offset += rng.randrange(1, 4)
        id = f"q{rng.randrange(8)}"
        where = rng.choice(["x > 1", "x > 2", "y > 3"])  # the source has no y: quarantined
        query = {"op": "query", "query": {"id": id, "source": "s", "where": where}}
        log.append(
            (offset, f"query:{id}", {"v": 1, "id": id, **rng.choice([query, query, {"op": "delete"}])})
        )
    return log


def replayed(log: Iterable[tuple[int, str, dict[str, Any]]], end: int) -> Catalog:
    catalog = Catalog(limits=Limits(), max_queries=100, max_queries_tenant=100, max_disjuncts_tenant=100)
    for offset, _, body in log:
        if offset < end:
            catalog.apply(offset, body)
    return catalog


def in_force(catalog: Catalog) -> set[tuple[int, bool]]:
    return (
        {(one.version, False) for one in catalog.queries.values()}
        | {(one.version, True) for one in catalog.quarantined.values()}
        | {(version, False) for version in catalog.source_versions.values()}
    )


def test_it_is_that_of_what_is_in_force_however_it_came_about() -> None:
    seen: dict[int, set[tuple[int, bool]]] = {}
    quarantined = 0
    for seed in range(15):
        log = history(seed)
        for end, _, _ in log:
            catalog = replayed(log, end)
            expected = 0
            for version, bad in in_force(catalog):
                quarantined += bad
                expected ^= mark(version, quarantined=bad)
            assert catalog.fingerprint == expected
            assert seen.setdefault(expected, in_force(catalog)) == in_force(catalog)
    assert len(seen) > 100
    assert quarantined


def test_a_compacted_log_comes_to_the_same_in_the_end_and_only_there() -> None:
    """Of each key the newest stays. Where a version that was in force is gone, the number says so."""
    told = 0
    for seed in range(15):
        log = history(seed)
        end = log[-1][0] + 1
        newest = {key: offset for offset, key, _ in log}
        compacted = [one for one in log if newest[one[1]] == one[0]]
        assert replayed(compacted, end).fingerprint == replayed(log, end).fingerprint
        for at, _, _ in log:
            whole = in_force(replayed(log, at)) == in_force(replayed(compacted, at))
            assert (replayed(compacted, at).fingerprint == replayed(log, at).fingerprint) is whole
            told += not whole
    assert told > 20


def test_metrics_carry_it_exactly() -> None:
    numbers = [mark(offset, quarantined=bad) for offset in range(1_000) for bad in (False, True)]
    assert len(set(numbers)) == len(numbers)
    assert all(int(float(number)) == number for number in numbers)
    assert text(0) == "0" * 12
    assert {len(text(number)) for number in numbers} == {12}
