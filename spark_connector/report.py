"""What the tables say, as text: the visits of each query, and what is wrong with the topics.

Text for people; a program reads ``visits`` and ``balance`` themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from service.tenants import DEFAULT_TENANT

#: Lines of a table at most; a table that is cut says so.
QUERIES_SHOWN = 50
VISITS_SHOWN = 10


def visit_report(visits: DataFrame) -> str:
    """The visits of each query (most first) and the last visits, as two tables. Reads ``visits`` once."""
    kept = visits.cache()
    try:
        return _visit_report(kept)
    finally:
        kept.unpersist()


def _visit_report(visits: DataFrame) -> str:
    by_query = visits.groupBy("tenant", "source", "query").agg(
        F.count("*").alias("visits"),
        F.count_if("open").alias("open"),
        F.sum("duration_ms").alias("total_ms"),
        F.max("duration_ms").alias("longest_ms"),
        F.max("enter_ts").alias("last_ts"),
    )
    queries = (
        by_query.orderBy(F.desc("visits"), "tenant", "source", "query").limit(QUERIES_SHOWN + 1).collect()
    )
    if not queries:
        return "No visits."
    latest = visits.orderBy(F.desc("enter_ts"), "tenant", "source", "query", "stream_id").limit(VISITS_SHOWN)
    summary = _table(
        ("query", "visits", "open now", "total", "longest", "last entered"),
        (
            (
                _name(row),
                f"{row.visits:,}",
                f"{row.open:,}",
                duration_text(row.total_ms),
                duration_text(row.longest_ms),
                time_text(row.last_ts),
            )
            for row in queries[:QUERIES_SHOWN]
        ),
    )
    cut = f"\n(the {QUERIES_SHOWN} queries with most visits)" if len(queries) > QUERIES_SHOWN else ""
    last = _table(
        ("last visits", "stream", "entered", "left", "for", "why it ended"),
        (
            (
                _name(row),
                row.stream_id,
                time_text(row.enter_ts),
                "still in" if row.open else time_text(row.leave_ts),
                duration_text(row.duration_ms),
                row.leave_reason or "",
            )
            for row in latest.collect()
        ),
    )
    return f"{summary}{cut}\n\n{last}"


def _name(row: object) -> str:
    tenant, source, query = (getattr(row, part) for part in ("tenant", "source", "query"))
    return f"{source}/{query}" if tenant == DEFAULT_TENANT else f"{tenant}/{source}/{query}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their widest cell, two spaces apart."""
    lines = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def time_text(ts: int | None) -> str:
    """``2013-01-30 04:00:00`` (UTC); a number of ms where the calendar has no such year."""
    if ts is None:
        return "?"
    try:
        return datetime.fromtimestamp(ts / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{ts} ms"


def duration_text(ms: int | None) -> str:
    """The two largest units, as ``3d 4h``; "" for none."""
    if ms is None:
        return ""
    sign, left = ("-", -ms) if ms < 0 else ("", ms)
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return sign + (" ".join(parts[:2]) or "0s")
