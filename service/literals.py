"""Literals of conditions, as they were given, and what they are.

Not for: what a literal is compared with (``where``). Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from service.model import Reason, Refusal


class Place(NamedTuple):
    """Where something stands in the sender's body: the field and, inside a text, the column."""

    field: str
    column: int | None = None

    def refusal(self, reason: Reason, detail: str) -> Refusal:
        return Refusal(
            reason, self.field, detail if self.column is None else f"column {self.column}: {detail}"
        )


class Value(NamedTuple):
    """A literal as it was given. Whether its type fits the attribute is not yet known."""

    value: object
    place: Place


def number_of(given: Value) -> float:
    """The bound as a finite float64, never -0.0. Raises Refusal: not_a_number, not_finite, inexact."""
    value, place = given
    if isinstance(value, bool) or not isinstance(value, int | float):
        given_as = f'the text "{shown(value)}"' if isinstance(value, str) else shown(value)
        raise place.refusal(Reason.NOT_A_NUMBER, f"{given_as} is not a number; write one, without quotes")
    if isinstance(value, float):
        if not math.isfinite(value):
            raise place.refusal(
                Reason.NOT_FINITE, "must be a finite float64; leave the bound out for no limit"
            )
        return value + 0.0
    try:
        number = float(value)
    except OverflowError:
        detail = "no float64 is such a large integer; leave the bound out for no limit"
        raise place.refusal(Reason.INEXACT, detail) from None
    if int(number) != value:
        detail = f"no float64 is exactly {value}; write {value}.0 for the nearest, which is {int(number)}"
        raise place.refusal(Reason.INEXACT, detail)
    return number + 0.0


def shown(value: object) -> str:
    """A value in a few words, for details: of whatever size and depth it is."""
    if isinstance(value, str):
        return value if len(value) <= 80 else value[:77] + "..."
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return repr(value) if abs(value) < 1e300 else "a huge number"
    return "an object" if isinstance(value, dict) else "a list"


def known_fields(given: Mapping[str, Any], fields: Sequence[str], field: str) -> None:
    """Raises Refusal (unknown_field) for a name in an object at ``field`` that is none of its fields."""
    for name in given:
        if name not in fields:
            detail = f"is no field here; there are {', '.join(fields)}"
            raise Refusal(Reason.UNKNOWN_FIELD, f"{field}.{shown(name)}", detail)
