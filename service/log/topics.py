"""Names of the fixed topics. One place: adapters create them, the wire writes to them, Spark reads them."""

from __future__ import annotations

MATCHES = "matches"
BORDERS = "borders"
JOINS = "joins"
AGGREGATES = "aggregates"
DEAD_LETTER = "dead_letter"
COMMANDS = "queries"
STATE = "state"

OUTPUTS = (MATCHES, BORDERS, JOINS, AGGREGATES, DEAD_LETTER)


def events_topic(source: str) -> str:
    """The topic of a source that names none of its own."""
    return f"events.{source}"
