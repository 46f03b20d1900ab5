"""What the service has counted for each set, and the closing table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import httpx
from prometheus_client.parser import text_string_to_metric_families
from rich.table import Table

from service.cli.client import send

_COUNTERS = {
    "rangewatch_events_processed_total": ("events",),
    "rangewatch_events_refused_total": ("events", "refused"),
    "rangewatch_events_late_total": ("late",),
    "rangewatch_matches_total": ("matches",),
    "rangewatch_enters_total": ("enters",),
    "rangewatch_leaves_total": ("leaves",),
}


@dataclass(slots=True)
class Summary:
    """What became of one set; ``seconds`` from the first event sent to the last one processed."""

    events: int = 0
    matches: int = 0
    enters: int = 0
    leaves: int = 0
    refused: int = 0
    late: int = 0
    seconds: float = 0.0


def counted(client: httpx.Client, source: str) -> Summary:
    """What the service has counted for a source, by its metrics."""
    summary = Summary()
    for family in text_string_to_metric_families(send(client, "GET", "/metrics").text):
        for sample in family.samples:
            if sample.labels.get("source") == source:
                for name in _COUNTERS.get(sample.name, ()):
                    setattr(summary, name, getattr(summary, name) + int(sample.value))
    return summary


def table(summaries: Mapping[str, Summary]) -> Table:
    """One row a set, and one for all of them."""
    made = Table(title="what happened")
    made.add_column("set")
    counts = [field.name for field in fields(Summary) if field.name != "seconds"]
    for heading in (*counts, "events/s"):
        made.add_column(heading, justify="right")
    whole = Summary()
    for summary in summaries.values():
        for field in fields(Summary):
            setattr(whole, field.name, getattr(whole, field.name) + getattr(summary, field.name))
    for name, summary in {**summaries, "both": whole}.items():
        rate = summary.events / max(summary.seconds, 1e-9)
        made.add_row(name, *(f"{getattr(summary, count):,}" for count in counts), f"{rate:,.0f}")
    return made
