"""Who changed what and when: the command log, for people.

Every change of a source or query is one entry of the command log, so the log is the history. A broker keeps
replaced entries for the time that its ``queries`` topic is told to (compaction lag); what is older is gone.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from service.api.bodies import json_answer
from service.api.context import LiveService
from service.api.problems import documented
from service.api.shapes import HistoryPage, answer

router = APIRouter(prefix="/v1", tags=["history"])

_EXAMPLE = {
    "entries": [
        {
            "command": 12,
            "at": 1766750400000,
            "by": "ana",
            "what": "written",
            "query": "harbour-7-fast",
            "source": None,
            "changed": None,
            "body": {"id": "harbour-7-fast", "source": "ais", "where": "sog > 10"},
        },
        {
            "command": 15,
            "at": 1766750460000,
            "by": None,
            "what": "deleted",
            "query": "harbour-7-fast",
            "source": None,
            "changed": None,
            "body": None,
        },
    ],
    "next": 16,
}


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    query: str | None = Field(None, description="only the entries of this query")
    source: str | None = Field(None, description="only the entries of this source itself")
    after: int = Field(0, ge=0, le=2**53, description="from this command on: the `next` of the page before")
    limit: int = Field(1_000, ge=1, description="look at so many commands; the setting max_page bounds it")


@router.get(
    "/history",
    summary="Who changed what, and when",
    response_model=None,
    responses={
        200: answer(HistoryPage, "Entries in order; what is looked for may be on a later page.", _EXAMPLE),
        **documented(422, 503),
    },
)
async def get_history(asked: Annotated[Asked, Query()], service: LiveService) -> Response:
    """Looks at `limit` commands from `after` on and shows those asked for. The end is reached when `next` is
    no more than the command of your last change. `by` is what a client said of itself in the header
    `X-Actor`."""
    service.check_limit(asked.limit)
    found, following = await service.history(asked.after, asked.limit)
    before: dict[tuple[str, str], dict[str, Any]] = {}
    shown = []
    for command, body in found:
        entry = _entry(command, body, before)
        wanted = asked.query is None and asked.source is None
        wanted |= asked.query is not None and entry["query"] == asked.query
        wanted |= asked.source is not None and entry["source"] == asked.source
        if wanted:
            shown.append(entry)
    return json_answer({"entries": shown, "next": following})


def _entry(command: int, body: Any, before: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    """One command as people read it. ``before`` has the last body of each thing on the page, moved on."""
    body = body if isinstance(body, dict) else {}
    op = body.get("op")
    kind = "source" if op == "source" else "query"
    name = body.get("name") if op == "source" else body.get("id")
    key, new = (kind, str(name)), body.get("source" if op == "source" else "query")
    old = before.pop(key, None)
    changed = None
    if isinstance(new, dict):
        before[key] = new
        if old is not None:
            changed = [field for field in {**old, **new} if old.get(field) != new.get(field)]
    return {
        "command": command,
        "at": body.get("at"),
        "by": body.get("by"),
        "what": _what(op, body, old, changed),
        "query": name if kind == "query" else None,
        "source": name if kind == "source" else None,
        "changed": changed,
        "body": new,
    }


def _what(op: Any, body: dict[str, Any], old: dict[str, Any] | None, changed: list[str] | None) -> str:
    """``written`` is a body whose predecessor is not on the page: it may be the first or not."""
    if op == "delete":
        return str(body.get("reason", "deleted"))
    if op not in ("query", "source"):
        return "unreadable"
    if changed == ["enabled"]:
        return "enabled" if body["query"]["enabled"] else "disabled"
    return "written" if old is None else "changed"
