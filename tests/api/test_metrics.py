from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import httpx
import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from service.metrics import Metrics
from tests.api.conftest import OwnSource
from tests.api.harness import running

#: The names that dashboards and alerts are built on: they stay.
NAMES = {
    "rangewatch_events": "counter",
    "rangewatch_events_processed": "counter",
    "rangewatch_events_refused": "counter",
    "rangewatch_events_late": "counter",
    "rangewatch_values_carried": "counter",
    "rangewatch_values_null": "counter",
    "rangewatch_matches": "counter",
    "rangewatch_enters": "counter",
    "rangewatch_leaves": "counter",
    "rangewatch_aggregates": "counter",
    "rangewatch_crosses": "counter",
    "rangewatch_commands": "counter",
    "rangewatch_commits": "counter",
    "rangewatch_requests_refused": "counter",
    "rangewatch_queries": "gauge",
    "rangewatch_index_boxes": "gauge",
    "rangewatch_index_bytes": "gauge",
    "rangewatch_streams": "gauge",
    "rangewatch_owed_records": "gauge",
    "rangewatch_consumer_lag_events": "gauge",
    "rangewatch_ready": "gauge",
    "rangewatch_command_offset": "gauge",
    "rangewatch_query_set_fingerprint": "gauge",
    "rangewatch_log_away": "gauge",
    "rangewatch_partitions_held": "gauge",
    "rangewatch_events_lost": "counter",
    "rangewatch_resets": "counter",
    "rangewatch_commit_seconds": "histogram",
    "rangewatch_batch_events": "histogram",
    "rangewatch_match_seconds": "histogram",
    "rangewatch_build_info": "gauge",
}


def samples(text: str, source: str | None = None) -> Counter[str]:
    """Sums of all samples by name, of one source if it is named."""
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if source is None or sample.labels.get("source") == source:
                found[sample.name] += int(sample.value)
    return found


def test_the_names_and_types_stay() -> None:
    families = text_string_to_metric_families(Metrics().text().decode())
    assert {family.name: family.type for family in families if not family.name.endswith("_created")} == NAMES
    assert all(family.documentation for family in text_string_to_metric_families(Metrics().text().decode()))


def test_two_services_in_one_process_do_not_mix() -> None:
    one, other = Metrics(), Metrics()
    one.commit(0.1)
    assert samples(one.text().decode())["rangewatch_commits_total"] == 1
    assert samples(other.text().decode())["rangewatch_commits_total"] == 0


def test_events_are_processed_or_refused_at_every_scrape() -> None:
    metrics = Metrics()
    stop = threading.Event()

    def count() -> None:
        while not stop.is_set():
            metrics.batch(
                "s",
                events=7,
                refused={"late": 2, "limit": 1},
                late=1,
                carried=2,
                nulls=3,
                matches={"default": 9},
                match_seconds=0.1,
            )

    thread = threading.Thread(target=count)
    thread.start()
    try:
        for _ in range(50):
            found = samples(metrics.text().decode())
            refused = found["rangewatch_events_refused_total"]
            assert found["rangewatch_events_total"] == found["rangewatch_events_processed_total"] + refused
            assert refused * 7 == found["rangewatch_events_total"] * 3
    finally:
        stop.set()
        thread.join()


def test_streams_are_summed_over_partitions_and_lost_ones_are_forgotten() -> None:
    metrics = Metrics()
    metrics.partition("t", 0, "s", streams=3, owed=0)
    metrics.partition("t", 1, "s", streams=4, owed=2)
    metrics.partition("u", 0, "other", streams=9, owed=5)
    metrics.lag("t", 1, 5)
    both = samples(metrics.text().decode(), "s")
    assert (both["rangewatch_streams"], both["rangewatch_owed_records"]) == (7, 2)
    metrics.forget_partition("t", 1)
    metrics.forget_partition("t", 7)
    found = metrics.text().decode()
    left = samples(found, "s")
    assert (left["rangewatch_streams"], left["rangewatch_owed_records"]) == (3, 0)
    assert samples(found)["rangewatch_consumer_lag_events"] == 0


def test_a_structure_that_is_no_longer_used_has_no_boxes() -> None:
    metrics = Metrics()
    metrics.index("s", boxes={"delta": 3}, nbytes=10)
    metrics.index("s", boxes={"scan": 5}, nbytes=20)
    found = metrics.text().decode()
    assert 'rangewatch_index_boxes{source="s",structure="delta"} 0.0' in found
    assert 'rangewatch_index_boxes{source="s",structure="scan"} 5.0' in found
    assert 'rangewatch_index_bytes{source="s"} 20.0' in found


def test_enters_and_leaves_are_told_apart() -> None:
    metrics = Metrics()
    metrics.borders("s", "default", np.array([True, False, True, True]))
    found = samples(metrics.text().decode())
    assert (found["rangewatch_enters_total"], found["rangewatch_leaves_total"]) == (3, 1)


def test_what_happens_is_counted(client: httpx.Client, source: OwnSource) -> None:
    source.register("a")
    source.register("off", enabled=False)
    source.send(
        {"stream_id": "v", "ts": 5, "x": 1}, {"stream_id": "v", "ts": 6, "x": -1}, {"stream_id": "w", "x": 1}
    )
    source.send({"stream_id": "v", "ts": 1, "x": 1}, {"stream_id": "v", "x": "bad"}, {"x": 1})
    client.delete(f"/v1/queries/{source.id('a')}").raise_for_status()
    text = client.get("/metrics").text
    found = samples(text, source.name)
    expected = {
        "rangewatch_events_total": 6,
        "rangewatch_events_processed_total": 4,
        "rangewatch_events_refused_total": 2,
        "rangewatch_events_late_total": 1,
        "rangewatch_matches_total": 3,
        "rangewatch_enters_total": 2,
        "rangewatch_leaves_total": 2,
        "rangewatch_streams": 2,
        "rangewatch_queries": 1,
    }
    assert {name: found[name] for name in expected} == expected
    assert f'rangewatch_events_refused_total{{reason="no_stream_id",source="{source.name}"}} 1.0' in text
    assert f'rangewatch_queries{{source="{source.name}",state="disabled",tenant="default"}} 1.0' in text
    assert "rangewatch_ready 1.0" in text
    assert 'rangewatch_build_info{version="' in text


def test_commands_are_counted_by_kind_and_result(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        client = service.client
        client.put("/v1/sources/s", json={"attributes": {"x": "number"}})
        client.put("/v1/queries/q", json={"source": "s", "where": "x > 0"})
        client.put("/v1/queries/q", json={"source": "s", "where": "y > 0"})
        client.delete("/v1/queries/q")
        lines = client.get("/metrics").text.splitlines()
    counted = {line for line in lines if line.startswith("rangewatch_commands_total{")}
    assert any('kind="put_query",result="refused"} 1.0' in line for line in counted)
    assert {line.split('"')[1] for line in counted} == {"put_source", "put_query", "delete_query"}
