"""The balance law checked from the log alone: silent on what balances, not on loss and duplication."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from service.engine.commands import PatchQuery
from spark_connector.balance import violations
from tests.faults.alone import Alone, LosingFile, furnish
from tests.spark.logs import border, random_log, table

pytestmark = pytest.mark.spark


def faults(spark: SparkSession, records: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """(source, stream_id, query, seq, offset of the record at fault, fault), sorted."""
    columns = ("source", "stream_id", "query", "seq", "log.offset", "fault")
    rows = violations(table(spark, records)).select(*columns).collect()
    return sorted((tuple(row) for row in rows), key=repr)


def test_logs_that_balance_have_no_violations(spark: SparkSession) -> None:
    assert faults(spark, [record for seed in range(60) for record in random_log(seed)]) == []


def test_each_tenant_balances_for_itself(spark: SparkSession) -> None:
    """Two logs of one source, with the same streams and ids, one written into the other."""
    left = [
        [record | {"tenant": tenant, "source": "shared"} for record in random_log(seed)]
        for seed, tenant in ((1, "default"), (2, "acme"))
    ]
    rng, mixed = random.Random(3), []
    while any(left):
        mixed.append(rng.choice([log for log in left if log]).pop(0))
    assert faults(spark, mixed) == []
    assert faults(spark, [record | {"tenant": "default"} for record in mixed]) != []


def test_a_service_that_has_lost_its_history_and_its_state_writes_a_log_that_balances(
    spark: SparkSession, tmp_path: Path
) -> None:
    alone = Alone(LosingFile(tmp_path / "log.db"))
    furnish(alone)
    first = [one.offset for one in alone.commands() if one.key == b"query:a"]
    alone.elsewhere(PatchQuery("a", {"where": "x > 8"}))
    alone.site.lose_command(first[0])
    alone.begin()
    alone.close()
    alone.site.lose_state()
    alone.begin()
    alone.process(*({"stream_id": id, "x": x} for x in (10, -5, 6) for id in ("s1", "s3")))
    records = alone.borders()
    alone.close()
    assert [record["stream_id"] for record in records if record["reason"] == "reset"] == [
        *("s1", "s2", "s3"),  # the command log was past their position
        *("s1", "s3"),  # their state was gone, and s2 was not heard of again
    ]
    assert faults(spark, records) == []


#: Records of a stream "s", and what is wrong with them: (query, seq, place of the record, fault).
CASES = [
    ([border("s", 4, 0, enter=["q"])], [(None, 4, 0, "no_beginning")]),
    ([border("s", 1, 0, enter=["q"]), border("s", 3, 1, leave=["q"])], [(None, 3, 1, "gap")]),
    (
        [border("s", 1, 0, enter=["q"]), border("s", 2, 1, cross=["q"]), border("s", 2, 1, cross=["q"])],
        [(None, 2, 2, "backwards")],
    ),
    (
        [
            border("s", 1, 0, enter=["q"]),
            border("s", 2, 1, leave=["q"], reason="stream_removed"),
            border("s", 2, 2, leave=["q"]),
        ],
        [("q", 2, 2, "left_outside"), (None, 2, 2, "backwards")],
    ),
    ([border("s", 1, 0, enter=["q"]), border("s", 1, 1, enter=["r"])], [("q", 1, 1, "held")]),
    ([border("s", 1, 0, enter=["q"]), border("s", 2, 1, enter=["q"])], [("q", 2, 1, "entered_twice")]),
    ([border("s", 1, 0, leave=["q"])], [("q", 1, 0, "left_outside")]),
    ([border("s", 1, 0, cross=["q"]), border("s", 2, 1, reason="reset")], [(None, 2, 1, "gap")]),
    # No faults: a reset that finds someone inside, a life after one that ended empty, leave before enter.
    ([border("s", 1, 0, enter=["q"]), border("s", 1, 1, reason="reset")], []),
    ([border("s", 1, 0, cross=["q"]), border("s", 1, 1, enter=["q"])], []),
    ([border("s", 1, 0, enter=["q"]), border("s", 2, 1, leave=["q"], enter=["q"])], []),
    # A query that only enters, or only leaves, may ask for no more: it is not held to alternation.
    ([border("s", seq, seq, enter=["one-sided"]) for seq in (1, 2, 3)], []),
    ([border("s", seq, seq, leave=["one-sided"]) for seq in (1, 2, 3)], []),
]


def test_each_fault_has_its_name_and_its_place(spark: SparkSession) -> None:
    records, expected = [], []
    for number, (case, found) in enumerate(CASES):
        source = f"case{number:02}"
        expected += [(source, "s", query, seq, len(records) + at, fault) for query, seq, at, fault in found]
        records += [record | {"source": source} for record in case]
        # Somewhere else the query has both kinds of border.
        records += [
            border("other", 1, 0, enter=["q"], source=source),
            border("other", 2, 0, leave=["q"], source=source),
        ]
    assert faults(spark, records) == sorted(expected, key=repr)


def provable(records: list[dict[str, Any]]) -> list[int]:
    """The places of records whose loss the log itself shows: a later record of the stream follows that takes
    the membership as it was (a reset does not)."""
    later = {record["stream_id"]: None for record in records}
    places = []
    for place in range(len(records) - 1, -1, -1):
        record = records[place]
        follower = later[record["stream_id"]]
        later[record["stream_id"]] = record
        if follower and follower["reason"] != "reset" and (record["leave"] or record["enter"]):
            places.append(place)
    return places


@pytest.mark.parametrize("damage", ["lost", "twice"])
def test_planted_damage_is_found_in_its_stream_and_nowhere_else(spark: SparkSession, damage: str) -> None:
    rng = random.Random(damage)
    damaged, broken = [], set()
    for seed in range(120):
        records = random_log(seed)
        place = rng.choice(provable(records))
        record = records[place]
        broken.add((record["source"], record["stream_id"]))
        damaged += records[:place] + [record] * (2 if damage == "twice" else 0) + records[place + 1 :]
    rows = violations(table(spark, damaged)).select("source", "stream_id").distinct().collect()
    assert {tuple(row) for row in rows} == broken
