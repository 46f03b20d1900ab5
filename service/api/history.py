"""Who changed what and when: the command log, for people.

Every change of a source, query or collection is one entry of the command log, so the log is the history. A
broker keeps replaced entries for the time that its ``queries`` topic is told to (compaction lag); what is
older is gone. It has what was asked for, in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from service.api.bodies import json_answer
from service.api.context import LiveService, Service
from service.api.problems import documented
from service.api.shapes import HistoryPage, answer
from service.tenants import DEFAULT_TENANT, split

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
            "collection": None,
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
            "collection": None,
            "changed": None,
            "body": None,
        },
    ],
    "next": 16,
}


#: How often one request goes on where it has found nothing.
_MOST_PARTS = 100


class Asked(BaseModel):
    query: str | None = Field(
        None,
        description="only the entries of this query, and that of the source since which it is quarantined",
    )
    source: str | None = Field(None, description="only the entries of this source itself")
    collection: str | None = Field(None, description="only the entries of this collection itself")
    after: int = Field(0, ge=0, le=2**53, description="from this command on: the `next` of the page before")
    limit: int = Field(
        1_000, ge=1, description="look at so many commands at a time; the setting max_page bounds it"
    )


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
    """Looks at `limit` commands from `after` on and shows those asked for: of the queries and collections of
    the key's tenant, and of sources, which all share. Where none of them is, it looks at the `limit` after
    these, and so on for a while. It looks at fewer where they come to the setting max_answer_bytes. The end
    is reached when `next` is no more than the command of your last change. `by` is the name of the client's
    key; where there are no keys, what it said of itself in the header `X-Actor`."""
    service.check_limit(asked.limit)
    if asked.source is not None:
        await service.source(asked.source)
    quarantined_by = None if asked.query is None else await _quarantined_by(asked.query, service)
    wanted = list(asked.model_dump(include={"query", "source", "collection"}, exclude_none=True).items())
    following = asked.after
    before: dict[tuple[str, str], dict[str, Any]] = {}
    shown: list[dict[str, Any]] = []
    for _ in range(_MOST_PARTS):
        found, following = await service.history(following, asked.limit)
        for command, body in found:
            subject = _subject(body)
            if subject.tenant not in (None, service.tenant):
                continue
            if not wanted or (subject.kind, subject.name) in wanted or command == quarantined_by:
                shown.append(_entry(command, subject, body, before))
                if subject.tenant is None and service.tenant != DEFAULT_TENANT:
                    shown[-1]["by"] = None  # the name of another tenant's key
        if shown or not found:
            break
    return json_answer({"entries": shown, "next": following})


async def _quarantined_by(id: str, service: Service) -> int | None:
    """The command since which a query is quarantined, if it is: its own, or one of its source."""
    key = service.key(id)
    quarantined = await service.ask(lambda engine: engine.catalog.quarantined.get(key))
    return None if quarantined is None else quarantined.version


#: By the op of a command, what it is about: the field that has the name, and the one that has the new body.
_ABOUT: Mapping[str, tuple[str, str, str | None]] = {
    "source": ("source", "name", "source"),
    "collection": ("collection", "name", None),
    "query": ("query", "id", "query"),
    "delete": ("query", "id", None),
}


class _Subject(NamedTuple):
    """What a command is about: its kind, whose it is (None: all share it) and what it is called there."""

    kind: str
    tenant: str | None
    name: Any


def _subject(body: Any) -> _Subject:
    body = body if isinstance(body, dict) else {}
    kind, named, _ = _about(body)
    name = body.get(named)
    if kind == "source":
        return _Subject(kind, None, name)
    return _Subject(kind, *(split(name) if isinstance(name, str) else (DEFAULT_TENANT, name)))


def _about(body: Mapping[str, Any]) -> tuple[str, str, str | None]:
    op = body.get("op")
    return _ABOUT.get(op if isinstance(op, str) else "", ("query", "id", None))


def _entry(
    command: int, subject: _Subject, body: Any, before: dict[tuple[str, str], dict[str, Any]]
) -> dict[str, Any]:
    """One command as people read it. ``before`` has the last body of each thing on the page, moved on."""
    body = body if isinstance(body, dict) else {}
    op = body.get("op")
    kind, _, name = subject
    inner = _about(body)[2]
    new = body.get(inner) if inner else None
    if op == "collection" and not body.get("deleted"):
        new = {field: body.get(field) for field in ("source", "kind", "members")}
    key = (kind, str(name))
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
        **{about: name if about == kind else None for about in ("query", "source", "collection")},
        "changed": changed,
        "body": new,
    }


def _what(op: Any, body: dict[str, Any], old: dict[str, Any] | None, changed: list[str] | None) -> str:
    """``written`` is a body whose predecessor is not on the page: it may be the first or not."""
    if op == "delete":
        return str(body.get("reason", "deleted"))
    if not isinstance(op, str) or op not in _ABOUT:
        return "unreadable"
    if body.get("deleted"):
        return "deleted"
    if changed == ["enabled"]:
        return "enabled" if body["query"].get("enabled", True) else "disabled"
    return "written" if old is None else "changed"
