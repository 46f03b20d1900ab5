"""``POST /v1/queries:bulk``: many queries in one streamed request.

The body is kept as its lines, which are parsed one by one as they are judged: parsed they would be many times
as large. Nothing is applied before the last byte is there, so a connection that breaks changes nothing,
whichever way was asked for. Of lines that are refused only the first are told.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, overload

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from service.api.bodies import Line, json_answer, read_lines
from service.api.context import LiveService
from service.api.problems import ProblemError, documented, status_of
from service.api.shapes import BulkSummary, answer, lines_body
from service.api.views import positions_view, refusal_view
from service.engine.commands import Outcome, PutQuery
from service.language import load_json
from service.model import Reason, Refusal
from service.requests import MOST_REFUSALS

router = APIRouter(prefix="/v1", tags=["queries"])

#: Lines of a per-item import that are applied at a time; events are processed in between.
_APPLIED_AT_A_TIME = 5_000


class BulkOptions(BaseModel):
    atomic: bool = Field(True, description="one refused line refuses all; false: each line for itself")


class _Lines(Sequence[PutQuery]):
    """The lines that are not blank, with their numbers; each is a command, made when it is asked for."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self.numbers: list[int] = []
        self.texts: list[bytes] = []

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, at: int) -> PutQuery: ...
    @overload
    def __getitem__(self, at: slice) -> _Lines: ...
    def __getitem__(self, at: int | slice) -> PutQuery | _Lines:
        if isinstance(at, int):
            return PutQuery(None, self.texts[at], tenant=self._tenant)
        some = _Lines(self._tenant)
        some.numbers, some.texts = self.numbers[at], self.texts[at]
        return some

    def add(self, lines: Sequence[Line]) -> None:
        self.numbers += [line.number for line in lines]
        self.texts += [line.text for line in lines]

    def failure(self, place: int, refusal: Refusal) -> dict[str, Any]:
        try:
            body = load_json(self.texts[place])
        except Refusal:
            body = None
        id = body.get("id") if isinstance(body, dict) else None
        return {
            "line": self.numbers[place],
            "id": id if isinstance(id, str) else None,
            **refusal_view(refusal),
        }


class _Done:
    """What became of the lines so far: ``refusal`` is the first of ``refused``, ``failures`` what is told, of
    which the last one goes over ``room`` bytes at the most."""

    def __init__(self, room: int) -> None:
        self._room = room
        self.refused = 0
        self.failures: list[dict[str, Any]] = []
        self.refusal: Refusal | None = None
        self._done: Counter[str] = Counter()
        self._last: int | None = None
        self._positions: dict[tuple[str, int], int] = {}

    def add(self, lines: _Lines, answers: Sequence[Outcome | Refusal | None]) -> None:
        seen: Any = None
        for place, one in enumerate(answers):
            if isinstance(one, Refusal):
                self.refused += 1
                self.refusal = self.refusal or one
                if len(self.failures) < MOST_REFUSALS and self._room > 0:
                    self.failures.append(lines.failure(place, one))
                    self._room -= len(json.dumps(self.failures[-1]))
            elif one is not None:
                self._done[one.done] += 1
                self._last = one.command if self._last is None else max(one.command, self._last)
                if one.active_from is not seen:  # those that became true in one step share one mapping
                    seen = one.active_from
                    for partition, offset in seen.items():
                        self._positions[partition] = max(offset, self._positions.get(partition, 0))

    def summary(self, received: int) -> dict[str, Any]:
        return {
            "received": received,
            "created": self._done["created"],
            "replaced": self._done["replaced"],
            "unchanged": self._done["unchanged"],
            "refused": self.refused,
            "active_from": None if self._last is None else positions_view(self._last, self._positions),
            "failures": self.failures,
        }


def _refused_together(done: _Done, refusal: Refusal, received: int) -> ProblemError:
    more = f" (and {done.refused - 1} more)" if done.refused > 1 else ""
    if done.refused == MOST_REFUSALS:
        more = f" (and {done.refused - 1} more, behind which no line was looked at)"
    line = done.failures[0]["line"]
    return ProblemError(
        status_of(refusal),
        refusal.reason,
        refusal.field,
        f"line {line}: {refusal.detail}{more}; nothing was changed",
        extra={"received": received, "refused": done.refused, "failures": done.failures},
    )


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
    """One query body a line, each as in `PUT /v1/queries/{id}`; blank lines do not count. `failures` has the
    first thousand of the lines that are refused, or fewer that come to the setting max_answer_bytes. Where
    all are refused together, the problem has members of the summary as well, `failures` first of all, and no
    line is looked at behind the thousandth of them. A body of more lines than `max_queries` is refused as a
    whole."""
    lines = _Lines(service.tenant)
    received, most = 0, service.settings.max_queries
    async for some in read_lines(request, service.settings):
        received += len(some)
        if received <= most:  # what is too much is read on, for the client to see the answer
            lines.add(some)
    if received > most:
        detail = f"has {received} lines; {most} queries are all that max_queries allows: send it in parts"
        raise Refusal(Reason.QUOTA, "", detail)
    done = _Done(service.settings.max_answer_bytes)
    size = max(received, 1) if options.atomic else _APPLIED_AT_A_TIME
    for begin in range(0, received, size):
        part = lines[begin : begin + size]
        answers = await service.commands(part, atomic=options.atomic)
        await asyncio.to_thread(done.add, part, answers)
    if options.atomic and done.refusal is not None:
        raise _refused_together(done, done.refusal, received)
    return json_answer(done.summary(received))
