"""Answers of the engine to questions, as clients see them. Any thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service.engine.explain import Border, Disjunct, Explanation, Failure
from service.engine.inquiry import Event
from service.engine.safe_region import NumberSide, SafeRegion, TextSide
from service.expression import comparisons
from service.geometry import Shape
from service.language import print_region
from service.model import Conjunct, Region
from service.shapes import shape_json, shape_text


def explanation_view(
    region: Region, values: Mapping[str, float | str], explanation: Explanation
) -> dict[str, Any]:
    return {"values": dict(values), **verdict_view(region, explanation)}


def verdict_view(region: Region, explanation: Explanation) -> dict[str, Any]:
    return {
        "holds": explanation.holds,
        "margin": _border_view(explanation.nearest),
        "disjuncts": [
            _disjunct_view(conjunct, disjunct)
            for conjunct, disjunct in zip(region.conjuncts, explanation.disjuncts, strict=True)
        ],
    }


def _disjunct_view(conjunct: Conjunct, disjunct: Disjunct) -> dict[str, Any]:
    return {
        "where": print_region(Region((conjunct,))),
        "holds": disjunct.holds,
        "fails": [_failure_view(failure) for failure in disjunct.fails],
        "margin": _border_view(disjunct.nearest),
    }


def _failure_view(failure: Failure) -> dict[str, Any]:
    return {
        "attribute": failure.attribute,
        **_predicate_view(failure),
        "value": failure.value,
        "missing": failure.value is None,
        "margin": _border_view(failure.nearest),
    }


def _predicate_view(failure: Failure) -> dict[str, Any]:
    bound = failure.bound
    if isinstance(bound, Shape):
        return {"predicate": shape_text(bound), "bound": shape_json(bound)}
    return {
        "predicate": print_region(Region(({failure.attribute: bound},))),
        "bound": dict(comparisons(bound)),
    }


def _border_view(border: Border | None) -> dict[str, Any] | None:
    if border is None:
        return None
    return {
        "attribute": border.attribute,
        "border": border.end,
        "distance": border.distance,
        "open": border.open,
    }


def event_view(event: Event) -> dict[str, Any]:
    return {
        "offset": event.offset,
        "row": event.item,
        "ts": event.ts,
        "verdict": event.verdict.value,
        "carried": event.carried,
    }


def sides_view(safe: SafeRegion) -> list[dict[str, Any]]:
    return [_number_side(side) if isinstance(side, NumberSide) else _text_side(side) for side in safe.sides]


def _number_side(side: NumberSide) -> dict[str, Any]:
    return {
        "attribute": side.attribute,
        "type": "number",
        "lower": side.lower,
        "upper": side.upper,
        "missing": side.missing,
    }


def _text_side(side: TextSide) -> dict[str, Any]:
    texts = side.texts
    listed = None if texts is None else {"not_in" if texts.negated else "in": sorted(texts.values)}
    return {"attribute": side.attribute, "type": "category", "texts": listed, "missing": side.missing}
