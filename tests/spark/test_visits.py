"""Visits against an account made by hand, and against a fold record by record."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_connector.report import duration_text, time_text, visit_report
from spark_connector.visits import visits
from tests.spark.logs import VISIT_COLUMNS, border, folded_visits, random_log, table

pytestmark = pytest.mark.spark

BY_HAND = [
    border("v1", 1, 1_000, enter=["fast", "north"]),
    border("v2", 1, 1_500, enter=["fast"], reason="registered", origin={"command": 4}),
    border("v1", 2, 4_000, leave=["fast"]),
    border("v1", 3, 4_500, cross=["fast"]),
    border("v1", 4, 7_000, leave=["north"], enter=["fast"]),
    border("v1", 5, 9_000, leave=["fast"], reason="stream_removed"),
    # The stream comes back: a new life, counted from 1.
    border("v1", 1, 20_000, enter=["north"]),
    # The history of v2 is lost: it is inside nothing, then inside what it is found in.
    border("v2", 1, 30_000, reason="reset"),
    border("v2", 2, 30_000, enter=["fast", "north"], reason="registered"),
    # Of another tenant, and of another source: streams of their own.
    border("v1", 1, 31_000, enter=["north"], tenant="other"),
    border("v1", 1, 32_000, enter=["north"], source="buoys"),
    border("v1", 2, 33_000, leave=["north"], source="buoys", reason="deleted"),
]

EXPECTED = [
    ("default", "ais", "v1", "fast", 1_000, 4_000, 3_000, False, "event", "event"),
    ("default", "ais", "v1", "fast", 7_000, 9_000, 2_000, False, "event", "stream_removed"),
    ("default", "ais", "v1", "north", 1_000, 7_000, 6_000, False, "event", "event"),
    ("default", "ais", "v1", "north", 20_000, None, None, True, "event", None),
    ("default", "ais", "v2", "fast", 1_500, 30_000, 28_500, False, "registered", "reset"),
    ("default", "ais", "v2", "fast", 30_000, None, None, True, "registered", None),
    ("default", "ais", "v2", "north", 30_000, None, None, True, "registered", None),
    ("default", "buoys", "v1", "north", 32_000, 33_000, 1_000, False, "event", "deleted"),
    ("other", "ais", "v1", "north", 31_000, None, None, True, "event", None),
]

REPORT = """\
query            visits  open now  total      longest    last entered
ais/fast         4       1         33s 500ms  28s 500ms  1970-01-01 00:00:30
ais/north        3       2         6s         6s         1970-01-01 00:00:30
buoys/north      1       0         1s         1s         1970-01-01 00:00:32
other/ais/north  1       1                               1970-01-01 00:00:31

last visits      stream  entered              left                 for        why it ended
buoys/north      v1      1970-01-01 00:00:32  1970-01-01 00:00:33  1s         deleted
other/ais/north  v1      1970-01-01 00:00:31  still in
ais/fast         v2      1970-01-01 00:00:30  still in
ais/north        v2      1970-01-01 00:00:30  still in
ais/north        v1      1970-01-01 00:00:20  still in
ais/fast         v1      1970-01-01 00:00:07  1970-01-01 00:00:09  2s         stream_removed
ais/fast         v2      1970-01-01 00:00:01  1970-01-01 00:00:30  28s 500ms  reset
ais/fast         v1      1970-01-01 00:00:01  1970-01-01 00:00:04  3s         event
ais/north        v1      1970-01-01 00:00:01  1970-01-01 00:00:07  6s         event"""


def found(
    spark: SparkSession, records: list[dict[str, Any]], *, partitions: int = 1
) -> list[tuple[Any, ...]]:
    rows = visits(table(spark, records, partitions=partitions)).select(*VISIT_COLUMNS).collect()
    return sorted((tuple(row) for row in rows), key=repr)


def test_the_account_by_hand(spark: SparkSession) -> None:
    assert found(spark, BY_HAND) == sorted(EXPECTED, key=repr)
    assert folded_visits(BY_HAND) == sorted(EXPECTED, key=repr)


def test_a_leave_and_an_enter_in_one_record_are_two_visits(spark: SparkSession) -> None:
    records = [border("s", 1, 1, enter=["q"]), border("s", 2, 5, leave=["q"], enter=["q"], reason="updated")]
    assert [row[4:] for row in found(spark, records)] == [
        (1, 5, 4, False, "event", "updated"),
        (5, None, None, True, "updated", None),
    ]


def test_an_end_that_the_log_does_not_tell_is_neither_open_nor_closed(spark: SparkSession) -> None:
    records = [border("s", seq, seq * 10, enter=["q"]) for seq in (1, 2)]
    assert [row[4:9] for row in found(spark, records)] == [
        (10, None, None, False, "event"),
        (20, None, None, True, "event"),
    ]


def test_a_visit_names_the_record_of_its_enter(spark: SparkSession) -> None:
    borders = table(spark, BY_HAND)
    joined = (
        visits(borders)
        .alias("visit")
        .join(borders.alias("border"), "log")
        .select("visit.enter_ts", "border.ts")
    )
    rows = joined.collect()
    assert len(rows) == len(EXPECTED)
    assert all(row.enter_ts == row.ts for row in rows)


def test_random_logs_fold_to_the_same_visits(spark: SparkSession) -> None:
    records = [record for seed in range(60) for record in random_log(seed)]
    expected = folded_visits(records)
    reasons = {visit[9] for visit in expected}
    assert {"event", "stream_removed", "reset", "disabled", None} <= reasons
    assert found(spark, records, partitions=3) == expected


def test_no_borders_no_visits(spark: SparkSession) -> None:
    assert found(spark, []) == []
    assert visit_report(visits(table(spark, []))) == "No visits."


def test_the_report(spark: SparkSession) -> None:
    assert visit_report(visits(table(spark, BY_HAND))) == REPORT


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, ""),
        (0, "0s"),
        (7, "7ms"),
        (-61_000, "-1m 1s"),
        (3_600_000, "1h"),
        (100_800_001, "1d 4h"),
        (86_400_007, "1d 7ms"),
    ],
)
def test_durations_as_text(ms: int | None, text: str) -> None:
    assert duration_text(ms) == text


def test_times_as_text() -> None:
    assert time_text(1_641_168_000_000) == "2022-01-03 00:00:00"
    assert time_text(2**62) == f"{2**62} ms"
