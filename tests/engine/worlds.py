"""Small worlds of regions and points: few values, so that points lie on borders most of the time."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from service.language import parse_where
from service.model import LOWEST, AttributeType, Refusal, Region, Source

SOURCE = Source(
    "s",
    {"x": AttributeType.NUMBER, "y": AttributeType.NUMBER, "k": AttributeType.CATEGORY},
    "events.s",
)
TEXTS = ("tug", "cargo", "yacht")

HALVES = st.integers(-2, 6).map(lambda n: n / 2)
#: Values where float64 is at its end, and the neighbours of others.
EDGES = st.sampled_from(
    [
        *(0.0, -0.0, 1.0, math.nextafter(1.0, 2.0), math.nextafter(1.0, 0.0)),
        *(LOWEST, -LOWEST, 5e-324, -5e-324, math.nextafter(LOWEST, 0.0)),
    ]
)
TEXT = st.sampled_from(TEXTS)

_CATEGORY = st.one_of(
    TEXT.map(lambda text: {"eq": text}),
    TEXT.map(lambda text: {"ne": text}),
    st.lists(TEXT, min_size=1, max_size=2, unique=True).map(lambda texts: {"in": texts}),
    st.lists(TEXT, min_size=1, max_size=2, unique=True).map(lambda texts: {"not_in": texts}),
)


def _bounds(number: st.SearchStrategy[float]) -> st.SearchStrategy[dict[str, float]]:
    lower = st.sampled_from(["gt", "gte"])
    upper = st.sampled_from(["lt", "lte"])
    two = st.tuples(lower, number, upper, number).filter(lambda b: b[1] < b[3] or b[0::2] == ("gte", "lte"))
    return st.one_of(
        two.map(lambda b: {b[0]: min(b[1], b[3]), b[2]: max(b[1], b[3])}),
        st.tuples(st.sampled_from(["gt", "gte", "lt", "lte", "eq", "ne"]), number).map(
            lambda b: {b[0]: b[1]}
        ),
    )


def wheres(number: st.SearchStrategy[float], *, most: int = 3) -> st.SearchStrategy[dict[str, Any]]:
    """Conditions in their JSON form, those that are empty as written among them."""
    conjunct = st.fixed_dictionaries(
        {}, optional={"x": _bounds(number), "y": _bounds(number), "k": _CATEGORY}
    )
    return st.lists(conjunct, min_size=1, max_size=most).map(lambda conjuncts: {"any": conjuncts})


def is_readable(where: dict[str, Any]) -> bool:
    try:
        parse_where(where, SOURCE, limit=100)
    except Refusal:
        return False
    return True


def region(where: Any) -> Region:
    return parse_where(where, SOURCE, limit=100)


def events(number: st.SearchStrategy[float]) -> st.SearchStrategy[dict[str, Any]]:
    """Present attributes; one text that no query names."""
    texts = st.sampled_from([*TEXTS, "unnamed"])
    return st.fixed_dictionaries({}, optional={"x": number, "y": number, "k": texts})
