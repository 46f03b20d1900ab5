"""``POST /v1/queries:bulk``: many queries in one streamed request.

Lines are parsed as they arrive, off the event loop, and the text of a line is dropped once it is parsed: the
body is never in memory as a whole, its queries are. Nothing is applied before the last byte is there, so a
connection that breaks changes nothing, whichever way was asked for.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from service.api.bodies import Line, json_answer, read_lines
from service.api.context import LiveService, Service
from service.api.problems import ProblemError, documented, status_of
from service.api.shapes import BulkSummary, answer, lines_body
from service.api.views import positions_view, refusal_view
from service.engine.commands import Outcome, PutQuery
from service.language import load_json
from service.model import Reason, Refusal

router = APIRouter(prefix="/v1", tags=["queries"])

#: Lines of a per-item import that are applied at a time; events are processed in between.
_APPLIED_AT_A_TIME = 5_000


class BulkOptions(BaseModel):
    atomic: bool = Field(True, description="one refused line refuses all; false: each line for itself")


class _Parsed:
    """The lines so far: what each asks for, or why it cannot be read."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.bodies: list[Any] = []

    def add(self, lines: Iterable[Line]) -> None:
        for number, text in lines:
            self.numbers.append(number)
            try:
                self.bodies.append(load_json(text))
            except Refusal as refusal:
                self.bodies.append(refusal)

    def failure(self, place: int, refusal: Refusal) -> dict[str, Any]:
        body = self.bodies[place]
        id = body.get("id") if isinstance(body, dict) else None
        return {
            "line": self.numbers[place],
            "id": id if isinstance(id, str) else None,
            **refusal_view(refusal),
        }


_SUMMARY = {
    "received": 3,
    "created": 1,
    "replaced": 1,
    "unchanged": 1,
    "refused": 0,
    "active_from": {"command": 14, "positions": [{"topic": "events.ais", "partition": 0, "offset": 4711}]},
    "failures": [],
}
_EXAMPLE_LINES = (
    '{"id": "fast", "source": "ais", "where": "sog > 30"}\n'
    '{"id": "tugs", "source": "ais", "where": "kind == \'tug\'", "tags": {"team": "port"}}\n'
)


@router.post(
    "/queries:bulk",
    summary="Register or replace many queries",
    response_model=None,
    responses={
        200: answer(BulkSummary, "What became of the lines; with atomic=true all of them hold.", _SUMMARY),
        **documented(400, 408, 409, 413, 422, 503),
    },
    openapi_extra=lines_body(_EXAMPLE_LINES),
)
async def bulk(options: Annotated[BulkOptions, Query()], request: Request, service: LiveService) -> Response:
    """One query body a line, each as in `PUT /v1/queries/{id}`; blank lines do not count. Where all are
    refused together, the problem has members of the summary as well, `failures` first of all. A body of more
    lines than `max_queries` is refused as a whole."""
    parsed = _Parsed()
    received, most = 0, service.settings.max_queries
    async for lines in read_lines(request, service.settings):
        received += len(lines)
        if lines and received <= most:  # what is too much is read on, for the client to see the answer
            await asyncio.to_thread(parsed.add, lines)
    if received > most:
        detail = f"has {received} lines; {most} queries are all that max_queries allows: send it in parts"
        raise Refusal(Reason.QUOTA, "", detail)
    answers = await _apply(service, parsed.bodies, atomic=options.atomic)
    refused = {place: one for place, one in enumerate(answers) if isinstance(one, Refusal)}
    if options.atomic and refused:
        raise _refused(parsed, refused)
    return json_answer(_summary(parsed, answers, refused))


async def _apply(service: Service, bodies: Sequence[Any], *, atomic: bool) -> list[Outcome | Refusal | None]:
    """An answer for every body; a Refusal among the bodies stands for itself, and is judged as no query at
    all, so that of lines that are refused together each is told."""
    answers: list[Outcome | Refusal | None] = []
    size = max(len(bodies), 1) if atomic else _APPLIED_AT_A_TIME
    for begin in range(0, len(bodies), size):
        some = bodies[begin : begin + size]
        commands = [
            PutQuery(None, None if isinstance(body, Refusal) else body, tenant=service.tenant)
            for body in some
        ]
        for body, one in zip(some, await service.commands(commands, atomic=atomic), strict=True):
            answers.append(body if isinstance(body, Refusal) else one)
    return answers


def _refused(parsed: _Parsed, refusals: dict[int, Refusal]) -> ProblemError:
    first = min(refusals)
    refusal = refusals[first]
    failures = [parsed.failure(place, one) for place, one in sorted(refusals.items())]
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    return ProblemError(
        status_of(refusal),
        refusal.reason,
        refusal.field,
        f"line {parsed.numbers[first]}: {refusal.detail}{more}; nothing was changed",
        extra={"received": len(parsed.bodies), "refused": len(failures), "failures": failures},
    )


def _summary(
    parsed: _Parsed, answers: Sequence[Outcome | Refusal | None], refused: dict[int, Refusal]
) -> dict[str, Any]:
    outcomes = [one for one in answers if isinstance(one, Outcome)]
    done = Counter(outcome.done for outcome in outcomes)
    positions: dict[tuple[str, int], int] = {}
    # Outcomes that became true in one step share one mapping; each is looked at once.
    for seen in {id(outcome.active_from): outcome.active_from for outcome in outcomes}.values():
        for partition, offset in seen.items():
            positions[partition] = max(offset, positions.get(partition, 0))
    last = max((outcome.command for outcome in outcomes), default=None)
    return {
        "received": len(parsed.bodies),
        "created": done["created"],
        "replaced": done["replaced"],
        "unchanged": done["unchanged"],
        "refused": len(refused),
        "active_from": None if last is None else positions_view(last, positions),
        "failures": [parsed.failure(place, one) for place, one in sorted(refused.items())],
    }
