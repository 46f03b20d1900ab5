"""The shapes of the answers to questions: why, since when, how far; see ``shapes``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from service.api.shapes import IndexPart, Shape
from service.engine.trace import Verdict
from service.model import Late, Missing

MARGIN_EXAMPLE = {"attribute": "sog", "border": 10.0, "distance": 0.5, "open": True}
DISJUNCT_EXAMPLE = {
    "where": "29.5 <= lat < 29.8 and sog > 10",
    "holds": False,
    "fails": [
        {
            "attribute": "sog",
            "predicate": "sog > 10",
            "bound": {"gt": 10},
            "value": 9.5,
            "missing": False,
            "margin": MARGIN_EXAMPLE,
        }
    ],
    "margin": MARGIN_EXAMPLE,
}


class BorderView(Shape):
    """The end of a bound on a number, or the edge of a shape, and how far away the value is."""

    attribute: str
    border: float | None = Field(description="null of the edge of a shape")
    distance: float = Field(description="in the unit of the attribute; from a circle in metres")
    open: bool = Field(description="whether the border itself is outside the bound")


class FailureView(Shape):
    """A comparison or a shape that does not hold."""

    attribute: str = Field(description="of a shape, such as (lon, lat)")
    predicate: str = Field(description="in canonical form")
    bound: dict[str, Any] = Field(description="the same as JSON; of a category, the texts that would do")
    value: float | str | tuple[float, float] | None = Field(
        description="null where it is missing; of a shape, the position"
    )
    missing: bool
    margin: BorderView | None = Field(
        description="the border that the value is to pass; null where no change of a number would do"
    )


class DisjunctView(Shape):
    where: str = Field(description="in canonical form")
    holds: bool
    fails: list[FailureView]
    margin: BorderView | None = Field(
        description="where it holds and has no shape, its nearest border; where only numbers are in the way,"
        " the farthest of those that are to be passed; else null"
    )


class Verdicts(Shape):
    """Of one event. ``margin``: of a query that holds: as long as no number changes by as much, it goes on
    holding; of one that does not: with every number free to pass as much, some disjunct can hold. Null where
    no number has such a border, or a shape has a say."""

    values: dict[str, float | str]
    holds: bool
    margin: BorderView | None
    disjuncts: list[DisjunctView]


class EventView(Shape):
    """An event as the service took it."""

    offset: int
    row: int
    ts: int | None
    verdict: Verdict = Field(
        description="moved: an ordinary event; late: it could match, but moved nothing; rejected: refused,"
        " since it was late; duplicate: refused, since it was a copy"
    )
    carried: list[str] = Field(description="attributes that it had from earlier events")


class StandView(Shape):
    """How a stream stands to the query. ``member`` and ``ignored`` are null of a query that is not
    registered; the events are null where they are no longer remembered."""

    stream_id: str
    topic: str
    partition: int
    ts: int | None
    member: bool | None
    ignored: bool | None = Field(description="inside since before the query watched it, and initial: ignore")
    waits_until: int | None = Field(
        description="`for`, `cooldown`: when it enters if it stays inside, ms; null where it does not wait,"
        " or is silent"
    )
    barred_until: int | None = Field(description="`cooldown`: before that it cannot enter again, ms")
    spent: bool | None = Field(description="`once`: it has been a member and never will be again")
    silent_since: int | None = Field(
        description="ms of the partition's time of its newest accepted event, if that is `stale_after` ago:"
        " no wait ends before its next; null of one that is not silent"
    )
    missing: Missing
    late: Late
    newest: EventView | None = Field(description="the newest event of the stream")
    moved_by: EventView | None = Field(description="the event that gave it the values")


class HoldingPart(IndexPart):
    of_query: int = Field(description="how many of the boxes are those of the query")


class KeepVerdicts(Shape):
    """The same of the region of `keep`, which a member must leave to leave the query."""

    canonical: str
    holds: bool
    margin: BorderView | None
    disjuncts: list[DisjunctView]


class Explained(Verdicts):
    query: str | None = Field(description="null of a query that was given whole")
    source: str
    canonical: str
    enabled: bool
    keep: KeepVerdicts | None = Field(description="null without `keep`: a member leaves where `where` ends")
    stream: StandView | None = Field(description="null where an event was given")
    index: list[HoldingPart] = Field(
        description="the parts of the source's index that the query lies in, and why these structures were"
        " chosen; none of a query that is disabled or was given whole, nor for another tenant than the"
        " default one, since they hold the queries of all"
    )


class Remembered(Shape):
    """The events of the partition from ``from_offset`` on are remembered, in memory only: a service that
    starts anew, or takes the partition over, begins anew."""

    from_offset: int | None = Field(description="null: none has come since the partition was taken up")
    overwritten: bool = Field(description="whether older ones came since then")


class TracedEvent(EventView, Verdicts):
    in_force: bool = Field(
        description="whether the query was already as it is now; if not, it was another one then"
    )
    matched: bool | None = Field(description="whether a match was due; null where it was not in force")


class Traced(Shape):
    source: str
    stream_id: str
    query: str
    canonical: str
    enabled: bool
    topic: str
    partition: int
    remembered: Remembered
    events: list[TracedEvent] = Field(description="the newest first")


class NumberSideView(Shape):
    """All numbers ``lower <= x < upper``; null: no end."""

    attribute: str
    type: Literal["number"]
    lower: float | None
    upper: float | None
    missing: bool = Field(description="whether a missing value is inside too")


class TextSideView(Shape):
    attribute: str
    type: Literal["category"]
    texts: dict[Literal["in", "not_in"], list[str]] | None = Field(description="null: any text")
    missing: bool = Field(description="whether a missing value is inside too")


class SafeRegionView(Shape):
    source: str
    stream_id: str
    values: dict[str, float | str]
    queries: int = Field(description="how many enabled queries of the tenant were looked at")
    maximal: bool = Field(
        description="false where the work was cut short, or queries have shapes: the region may be larger"
    )
    sides: list[NumberSideView | TextSideView] = Field(description="in the order of the source's attributes")


class DuplicateGroup(Shape):
    canonical: str
    queries: list[str]


class DuplicatesPage(Shape):
    source: str
    groups: list[DuplicateGroup]
    next: str | None = Field(description="`after` of the next page; null on the last")


class CountedFrom(Shape):
    """The first event of a partition that was counted, and when; null before the first."""

    topic: str
    partition: int
    offset: int | None
    at_ms: int | None


class UnmatchedQuery(Shape):
    id: str
    without: Literal["matches", "borders"] = Field(
        description="borders: the query asks for no matches, and no event has carried a stream in or out"
    )


class UnmatchedPage(Shape):
    source: str
    since: list[CountedFrom]
    queries: list[UnmatchedQuery]
    next: str | None = Field(description="`after` of the next page; null on the last")
