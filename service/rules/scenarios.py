"""Scenarios: what a rule-test file says, read and checked before anything is played.

A scenario is what a service is given to start with (sources, queries, settings) and steps in order. A step
does at most one thing (``acts``) and may then expect records (``expectations``). What a scenario does not say
itself it takes, field by field, from the top of the file.

Not for: judging queries and events, which the service does, nor playing (``play``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import ValidationError

from service.log.topics import OUTPUTS
from service.model import Reason
from service.rules.acts import (
    Act,
    Body,
    Paths,
    RemoveStream,
    Restart,
    Send,
    read_deletion,
    read_duration,
    read_message,
    read_patch,
    read_query,
    read_source,
    read_time,
    title,
)
from service.rules.collections import read_collection
from service.rules.document import Node, read_document
from service.rules.expectations import Ambiguous, Expected, Newest, read_expected
from service.settings import Settings
from service.tenants import DEFAULT_TENANT

#: Settings that change what is written: a scenario may set them, and the environment has no say.
SETTINGS = (
    *(
        "max_ids_per_record",
        "max_streams",
        "max_queries",
        "max_queries_tenant",
        "max_disjuncts",
        "max_vertices",
        "max_disjuncts_tenant",
        "max_message_bytes",
        "max_message_events",
    ),
    *("max_batch_events", "portion_records", "index"),
)
#: The source of a file that names none.
DEFAULT_SOURCE = "test"

_SHARED = ("source", "sources", "queries", "settings", "compare")
_SCENARIO = ("name", *_SHARED, "steps")
_FILE = (*_SHARED, "scenarios")
_MESSAGES = ("event", "events", "raw", "raw_hex")
_OF_A_SOURCE = (*_MESSAGES, "tombstone", "remove_stream")
_COMMANDS = ("put", "post", "patch", "delete", "put_source", "collection", "remove_stream")
_ACTS = (*_MESSAGES, "tombstone", *_COMMANDS, "at", "advance", "restart")
_STEP = (*_ACTS, "source", "expect", "refused")


class Refused(NamedTuple):
    """How a command is refused; ``field`` None: whichever."""

    reason: str
    field: str | None


@dataclass(frozen=True, slots=True)
class Step:
    """``title`` says for people what it does; ``refused`` and ``expected`` are None where nothing is said."""

    line: int
    title: str
    act: Act | None
    refused: Refused | None
    expected: Expected | None


@dataclass(frozen=True, slots=True)
class Scenario:
    """``begin`` are the sources and queries that are there before the first step; none may be refused.
    ``compared`` are the topics that count."""

    name: str
    line: int
    settings: Settings
    compared: tuple[str, ...]
    begin: tuple[Body, ...]
    steps: tuple[Step, ...]


def read_scenarios(text: str) -> list[Scenario]:
    """The scenarios of a file. Raises RuleFileError."""
    root = read_document(text)
    shared = root.fields(_FILE)
    if "scenarios" not in shared:
        raise root.error("has no `scenarios`")
    found: dict[str, Scenario] = {}
    for node in shared["scenarios"].items():
        scenario = _Reader(node, shared).scenario()
        if scenario.name in found:
            raise node.reach("name").error("is the name of another scenario of this file")
        found[scenario.name] = scenario
    if not found:
        raise shared["scenarios"].error("must have at least one scenario")
    return list(found.values())


class _Reader:
    """Reads one scenario; ``_newest`` is the stream of the newest event on the way through the steps,
    ``_tenants`` those who have asked for anything by then."""

    def __init__(self, node: Node, shared: Mapping[str, Node]) -> None:
        self._node = node
        own = node.fields(_SCENARIO)
        if "source" in own or "sources" in own:
            shared = {name: one for name, one in shared.items() if name not in ("source", "sources")}
        self._fields = {**shared, **own}
        self._paths: dict[str, Paths] = {}
        self._newest: Newest | None = None
        self._tenants = {DEFAULT_TENANT}

    def scenario(self) -> Scenario:
        for field in ("name", "steps"):
            if field not in self._fields:
                raise self._node.error(f"has no `{field}`")
        compared = self._compared()
        begin = (*self._sources(), *self._queries())
        steps = tuple(self._step(node, compared) for node in self._fields["steps"].items())
        if not steps:
            raise self._fields["steps"].error("must have at least one step")
        name = self._fields["name"].text()
        return Scenario(name, self._node.line, self._settings(), compared, begin, steps)

    def _compared(self) -> tuple[str, ...]:
        node = self._fields.get("compare")
        if node is None:
            return OUTPUTS
        if not node.items():
            raise node.error("must name a topic; a test that compares nothing cannot fail")
        return tuple(item.choice(OUTPUTS) for item in node.items())

    def _settings(self) -> Settings:
        node = self._fields.get("settings")
        given = node.fields(SETTINGS) if node is not None else {}
        defaults = {name: field.get_default() for name, field in Settings.model_fields.items()}
        try:
            return Settings(**{**defaults, **{name: one.plain() for name, one in given.items()}})
        except ValidationError as error:
            problem = error.errors()[0]
            message = problem["msg"].removeprefix("Value error, ")
            raise given[str(problem["loc"][0])].error(message) from None

    # ---- what there is to begin with

    def _sources(self) -> list[Body]:
        if "source" in self._fields and "sources" in self._fields:
            raise self._fields["sources"].error("stands beside `source`; put all of them here")
        if "sources" in self._fields:
            return [self._source(node) for node in self._fields["sources"].items()]
        if "source" not in self._fields:
            raise self._node.error("has no `source`, nor has the file")
        return [self._source(self._fields["source"])]

    def _source(self, node: Node) -> Body:
        body, paths = read_source(node, DEFAULT_SOURCE)
        self._paths[body.id or DEFAULT_SOURCE] = paths
        return body

    def _queries(self) -> list[Body]:
        node = self._fields.get("queries")
        return [self._query("post", one) for one in node.items()] if node is not None else []

    def _query(self, op: str, node: Node) -> Body:
        named = "source" in node.mapping()
        query = read_query(op, node, "" if named else self._only_source(node))
        self._tenants.add(query.tenant)
        return query

    def _only_source(self, node: Node) -> str:
        if len(self._paths) != 1:
            raise node.error(f"must name its `source`; there are {', '.join(self._paths)}")
        return next(iter(self._paths))

    # ---- steps

    def _step(self, node: Node, compared: tuple[str, ...]) -> Step:
        if node.value == "restart":
            return Step(node.line, "restart", Restart(), None, None)
        fields = node.fields(_STEP)
        acts = [name for name in fields if name in _ACTS]
        if len(acts) > 1:
            raise fields[acts[1]].error(f"stands beside `{acts[0]}`; a step does one thing")
        if not acts and "expect" not in fields:
            raise node.error(f"does nothing; there are {', '.join(_ACTS)} and expect")
        name = acts[0] if acts else "expect"
        if "source" in fields and name not in _OF_A_SOURCE:
            raise fields["source"].error(f"does not belong to `{name}`")
        act = self._act(name, fields) if acts else None
        refused = _refused(name, fields["refused"]) if "refused" in fields else None
        expected = None
        if "expect" in fields:
            several = Ambiguous(sources=len(self._paths) > 1, tenants=len(self._tenants) > 1)
            expected = read_expected(fields["expect"], compared, self._newest, several)
        return Step(node.line, title(name, act), act, refused, expected)

    def _act(self, name: str, fields: Mapping[str, Node]) -> Act:
        node = fields[name]
        match name:
            case "tombstone" | "remove_stream":
                source = self._source_of(node, fields)
                self._newest = Newest(source, node.text())
                if name == "remove_stream":
                    return RemoveStream(source, node.text())
                return Send(source, node.text().encode(), None, None)
            case "put_source":
                return self._source(node)
            case "put" | "post":
                return self._query(name, node)
            case "collection":
                named = node.mapping().get("source")
                source = self._only_source(node) if named is None else named.choice(tuple(self._paths))
                collection = read_collection(node, source)
                self._tenants.add(collection.tenant)
                return collection
            case "patch":
                return read_patch(node)
            case "delete":
                return read_deletion(node)
            case "at":
                return read_time(node)
            case "advance":
                return read_duration(node)
            case "restart":
                if node.value is not None:
                    raise node.error("has no value: write `- restart`, or `restart:` beside `expect:`")
                return Restart()
            case _:
                source = self._source_of(node, fields)
                sent, stream_id = read_message(name, node, source, self._paths[source])
                self._newest = Newest(source, stream_id)
                return sent

    def _source_of(self, node: Node, fields: Mapping[str, Node]) -> str:
        if "source" in fields:
            return fields["source"].choice(tuple(self._paths))
        return self._only_source(node)


def _refused(name: str, node: Node) -> Refused:
    if name not in _COMMANDS:
        raise node.error("is of commands; a refused event is a dead letter: `expect: {refused: ...}`")
    reasons = [reason.value for reason in Reason]
    if not isinstance(node.value, dict):
        return Refused(node.choice(reasons), None)
    fields = node.fields(("reason", "field"))
    if "reason" not in fields:
        raise node.error("has no `reason`")
    field = fields["field"].plain() if "field" in fields else None
    return Refused(fields["reason"].choice(reasons), field)
