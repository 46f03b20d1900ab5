"""Metrics: what the runtime counts, under names that stay.

Conservation: by source, ``events = processed + refused``. A dashboard may rely on it at every scrape, because
a batch is counted with one call, and a scrape sees a batch wholly or not at all.

The registry belongs to the object: two services in one process do not mix. Callable from any thread. Not for:
logs, or anything that needs a clock (durations come in as seconds).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from threading import Lock

import numpy as np
from numpy.typing import NDArray
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    disable_created_metrics,
    generate_latest,
)

from service import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_COMMIT_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_BATCH_EVENTS = (1, 10, 100, 500, 1_000, 5_000, 10_000, 50_000, 100_000, 1_000_000)
_MATCH_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

# When each series began: twice the series, and no use to anybody here.
disable_created_metrics()  # type: ignore[no-untyped-call]

_CAPITAL = re.compile(r"(?<!^)([A-Z])")


class Metrics:
    """Counters, gauges and histograms of one service; see the module."""

    def __init__(self) -> None:
        self._lock = Lock()
        #: by partition: its source, living streams, owed records
        self._partitions: dict[tuple[str, int], tuple[str, int, int]] = {}
        self._structures: dict[str, set[str]] = {}
        self._registry = registry = CollectorRegistry()
        source, tenant = ["source"], ["source", "tenant"]
        self._events = Counter("rangewatch_events", "Events taken from the log.", source, registry=registry)
        self._processed = Counter(
            "rangewatch_events_processed", "Events accepted and matched.", source, registry=registry
        )
        self._refused = Counter(
            "rangewatch_events_refused",
            "Events sent to the dead letters, by reason class.",
            ["source", "reason"],
            registry=registry,
        )
        self._late = Counter(
            "rangewatch_events_late",
            "Processed events older than their stream's last.",
            source,
            registry=registry,
        )
        self._carried = Counter(
            "rangewatch_values_carried",
            "Missing values for which the stream's last counted (missing: carry).",
            source,
            registry=registry,
        )
        self._nulls = Counter(
            "rangewatch_values_null",
            "Nulls that counted as missing values (nulls: absent).",
            source,
            registry=registry,
        )
        self._matches = Counter(
            "rangewatch_matches",
            "Pairs of an event and a query that it satisfies.",
            tenant,
            registry=registry,
        )
        self._enters = Counter(
            "rangewatch_enters", "Enters written, whatever caused them.", tenant, registry=registry
        )
        self._crosses = Counter(
            "rangewatch_crosses", "Regions jumped over, as written.", tenant, registry=registry
        )
        self._leaves = Counter(
            "rangewatch_leaves", "Leaves written, whatever caused them.", tenant, registry=registry
        )
        self._aggregates = Counter(
            "rangewatch_aggregates", "Records of aggregates written.", source, registry=registry
        )
        self._commands = Counter(
            "rangewatch_commands",
            "Requested changes of sources, queries and streams, by what became of them.",
            ["kind", "result"],
            registry=registry,
        )
        self._commits = Counter(
            "rangewatch_commits", "Commits of outputs, state and position.", registry=registry
        )
        self._refused_requests = Counter(
            "rangewatch_requests_refused",
            "Requests that were not let in, by reason class.",
            ["reason"],
            registry=registry,
        )
        for reason in ("unauthenticated", "forbidden", "quota"):
            self._refused_requests.labels(
                reason
            )  # at 0 from the start: an alert needs something to rise from
        self._queries = Gauge(
            "rangewatch_queries", "Registered queries, by state.", [*tenant, "state"], registry=registry
        )
        self._command_offset = Gauge(
            "rangewatch_command_offset", "The command that comes next.", registry=registry
        )
        self._fingerprint = Gauge(
            "rangewatch_query_set_fingerprint",
            "A number for the query set: workers at the same command offset have the same.",
            registry=registry,
        )
        self._lost = Counter(
            "rangewatch_events_lost",
            "Messages that were gone from the log before they were processed.",
            registry=registry,
        )
        self._log_away = Gauge("rangewatch_log_away", "1 while the log does not answer.", registry=registry)
        self._held = Gauge(
            "rangewatch_partitions_held",
            "Partitions whose input waits for schemas.",
            registry=registry,
        )
        self._resets = Counter(
            "rangewatch_resets",
            "Partitions whose streams began anew, by what was gone.",
            ["missing"],
            registry=registry,
        )
        for missing in ("commands", "position", "state"):
            self._resets.labels(missing)
        self._index_boxes = Gauge(
            "rangewatch_index_boxes",
            "Boxes in the indexes of a source, by structure.",
            ["source", "structure"],
            registry=registry,
        )
        self._index_bytes = Gauge(
            "rangewatch_index_bytes", "Memory held by the indexes of a source.", source, registry=registry
        )
        self._streams = Gauge("rangewatch_streams", "Living streams.", source, registry=registry)
        self._owed = Gauge(
            "rangewatch_owed_records",
            "Border records of commands that hold and are still to be written.",
            source,
            registry=registry,
        )
        self._lag = Gauge(
            "rangewatch_consumer_lag_events",
            "Messages in the log that are not processed yet.",
            ["topic", "partition"],
            registry=registry,
        )
        self._ready = Gauge(
            "rangewatch_ready", "1 when query set and state have caught up.", registry=registry
        )
        self._commit_seconds = Histogram(
            "rangewatch_commit_seconds", "Time of a commit.", buckets=_COMMIT_SECONDS, registry=registry
        )
        self._batch_events = Histogram(
            "rangewatch_batch_events",
            "Events of a source in a step.",
            buckets=_BATCH_EVENTS,
            registry=registry,
        )
        self._match_seconds = Histogram(
            "rangewatch_match_seconds",
            "Time in the engine for the events of a source in a step.",
            buckets=_MATCH_SECONDS,
            registry=registry,
        )
        build = Info("rangewatch_build", "The service itself.", registry=registry)
        build.info({"version": __version__})

    def batch(
        self,
        source: str,
        *,
        events: int,
        refused: Mapping[str, int],
        late: int,
        carried: int,
        nulls: int,
        matches: Mapping[str, int],
        match_seconds: float,
    ) -> None:
        """Counts one batch of a source. ``refused`` is by reason, ``matches`` by tenant; the rest of
        ``events`` was processed. ``match_seconds`` is the time spent in the engine."""
        with self._lock:
            self._events.labels(source).inc(events)
            self._processed.labels(source).inc(events - sum(refused.values()))
            for reason, number in refused.items():
                self._refused.labels(source, reason).inc(number)
            self._late.labels(source).inc(late)
            self._carried.labels(source).inc(carried)
            self._nulls.labels(source).inc(nulls)
            for tenant, number in matches.items():
                self._matches.labels(source, tenant).inc(number)
            self._batch_events.observe(events)
            self._match_seconds.observe(match_seconds)

    def borders(self, source: str, tenant: str, sides: NDArray[np.uint8]) -> None:
        """Counts leaves, enters and crosses (0, 1, 2) that a tenant is told, whatever caused them."""
        counts = np.bincount(sides, minlength=3).tolist()
        with self._lock:
            for counter, count in zip((self._leaves, self._enters, self._crosses), counts, strict=True):
                counter.labels(source, tenant).inc(count)

    def aggregates(self, source: str, records: int) -> None:
        """Counts records of aggregates, whatever caused them."""
        self._aggregates.labels(source).inc(records)

    def commands(self, kind: str, result: str, count: int) -> None:
        """Counts requests: ``kind`` as ``PutQuery``, shown as ``put_query``; ``result`` as ``refused``."""
        self._commands.labels(_CAPITAL.sub(r"_\1", kind).lower(), result).inc(count)

    def request_refused(self, reason: str) -> None:
        """Counts one request that was not let in: ``unauthenticated``, ``forbidden`` or ``quota``."""
        self._refused_requests.labels(reason).inc()

    def commit(self, seconds: float) -> None:
        self._commits.inc()
        self._commit_seconds.observe(seconds)

    def index(self, source: str, *, boxes: Mapping[str, int], nbytes: int) -> None:
        """Sets what the indexes of a source are made of, boxes by structure."""
        with self._lock:
            known = self._structures.setdefault(source, set())
            known.update(boxes)
            for structure in known:
                self._index_boxes.labels(source, structure).set(boxes.get(structure, 0))
            self._index_bytes.labels(source).set(nbytes)

    def queries(self, source: str, tenant: str, **by_state: int) -> None:
        """Sets how many queries a tenant has now on a source, by state."""
        for state, number in by_state.items():
            self._queries.labels(source, tenant, state).set(number)

    def query_set(self, offset: int, fingerprint: int) -> None:
        """Sets which query set is in force, and as of which command offset."""
        with self._lock:
            self._command_offset.set(offset)
            self._fingerprint.set(fingerprint)

    def lost(self, messages: int) -> None:
        """Counts messages that are gone and were not processed."""
        self._lost.inc(messages)

    def log_away(self, away: bool) -> None:
        self._log_away.set(away)

    def held(self, partitions: int) -> None:
        """Sets how many partitions wait for schemas."""
        self._held.set(partitions)

    def reset(self, missing: str) -> None:
        """Counts one partition whose streams begin anew, because ``commands``, ``position`` or ``state`` are
        gone."""
        self._resets.labels(missing).inc()

    def partition(self, topic: str, partition: int, source: str, *, streams: int, owed: int) -> None:
        """Sets how many streams live in a partition, and how many records they are owed; the gauges are the
        sums over the source's partitions."""
        with self._lock:
            self._partitions[topic, partition] = (source, streams, owed)
            self._sum_partitions(source)

    def lag(self, topic: str, partition: int, events: int) -> None:
        self._lag.labels(topic, str(partition)).set(events)

    def forget_partition(self, topic: str, partition: int) -> None:
        """A partition that another worker has now; unknown ones are ignored."""
        with self._lock:
            self._lag.remove_by_labels({"topic": topic, "partition": str(partition)})
            source, _, _ = self._partitions.pop((topic, partition), ("", 0, 0))
            if source:
                self._sum_partitions(source)

    def _sum_partitions(self, source: str) -> None:
        mine = [numbers for name, *numbers in self._partitions.values() if name == source]
        self._streams.labels(source).set(sum(streams for streams, _ in mine))
        self._owed.labels(source).set(sum(owed for _, owed in mine))

    def ready(self, ready: bool) -> None:
        self._ready.set(ready)

    def text(self) -> bytes:
        """Everything in Prometheus' text format, ``CONTENT_TYPE``."""
        with self._lock:
            return generate_latest(self._registry)
