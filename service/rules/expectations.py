"""What a scenario expects: records of the output topics, each with the fields that are to be compared.

Two notations come to one thing. *By topic*: the records as they are published; only the named fields count.
*Compact*: ``{match: [q], enter: [q]}`` names the query ids of the match record and of the border record of
one stream; an id list that is left out is then empty, and the stream is the one of the newest event unless
``stream_id`` says otherwise.

The fields of a record, and the reasons that it may give, are those of its published schema, so a misspelt one
is refused before anything is played. Not for: comparing (``comparison``).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from service.log.topics import BORDERS, DEAD_LETTER, MATCHES, OUTPUTS
from service.rules.document import Node, suggestion
from service.tenants import DEFAULT_TENANT

ANY, NOTHING = "any", "nothing"

#: Fields that are sets of query ids; the records have them sorted.
ID_LISTS = ("queries", "leave", "enter", "cross")
_BORDER_IDS = ("leave", "enter", "cross")

#: What begins a record in the compact notation, and the topic that it is written to.
_BEGINS = {
    "match": MATCHES,
    **dict.fromkeys((*_BORDER_IDS, "reason", "seq"), BORDERS),
    "refused": DEAD_LETTER,
}
#: Compact names of fields that have another name in the record.
_RECORD_NAME = {"match": "queries", "refused": "reason"}


class ExpectedRecord(NamedTuple):
    """A record of a topic: the fields that are compared."""

    topic: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Expected:
    """Everything that may have been written, in order per stream, to the topics that are compared."""

    line: int
    topics: frozenset[str]
    records: tuple[ExpectedRecord, ...]


class Newest(NamedTuple):
    """The stream of the newest event: whom a compact record is about that names nobody."""

    source: str
    stream_id: str | None


class Ambiguous(NamedTuple):
    """What a scenario has several of by then: a compact record that does not name its own is of the source of
    the newest event, and of the default tenant."""

    sources: bool
    tenants: bool


def read_expected(
    node: Node, compared: Collection[str], newest: Newest | None, several: Ambiguous
) -> Expected:
    """An ``expect``. ``compared``: topics that are compared at all. Raises RuleFileError."""
    topics = frozenset(compared)
    if node.value == ANY:
        return Expected(node.line, frozenset(), ())
    if node.value in (None, NOTHING, []):
        return Expected(node.line, topics, ())
    if isinstance(node.value, dict) and node.value and not node.value.keys() - set(OUTPUTS):
        for name, field in node.value.items():
            _must_count(field, name, topics)
        skipped = {topic for topic, records in node.value.items() if records.value == ANY}
        found = [record for name, records in node.value.items() for record in _of_topic(name, records)]
        return Expected(node.line, topics - skipped, tuple(found))
    items = [node] if isinstance(node.value, dict) else node.items()
    found = [record for item in items for record in _compact(item, topics, newest, several)]
    return Expected(node.line, topics, tuple(found))


def _must_count(node: Node, topic: str, topics: Collection[str]) -> None:
    if topic not in topics:
        raise node.error(f"`compare` leaves {topic} out, so nothing would check this")


def _of_topic(topic: str, node: Node) -> Iterator[ExpectedRecord]:
    if node.value in (None, ANY, NOTHING):
        return
    for item in node.items():
        fields = item.fields(tuple(_properties(topic)))
        yield ExpectedRecord(topic, {name: _value(topic, name, field) for name, field in fields.items()})


def _compact(
    item: Node, topics: Collection[str], newest: Newest | None, several: Ambiguous
) -> Iterator[ExpectedRecord]:
    fields = _compact_fields(item)
    begun: dict[str, Node] = {}
    for name, node in fields.items():
        if name in _BEGINS:
            _must_count(node, _BEGINS[name], topics)
            begun.setdefault(_BEGINS[name], node)
    if not begun:
        raise item.error(f"names no record; there are {', '.join(_BEGINS)}")
    if DEAD_LETTER in begun and len(begun) > 1:
        raise begun[DEAD_LETTER].error("an event that is refused neither matches nor crosses a border")
    for name, node in fields.items():
        if not any(_belongs(name, topic) for topic in begun):
            raise node.error(f"no record of {' and '.join(sorted(begun))} has this field")
    for topic in begun:
        mine = {_RECORD_NAME.get(name, name): fields[name] for name in fields if _belongs(name, topic)}
        record = {name: _value(topic, name, node) for name, node in mine.items()}
        if not any(record.get(name) for name in (*ID_LISTS, "reason", "seq")):
            continue  # only lists without ids: no record at all
        if topic == BORDERS:
            record = {**{name: [] for name in _BORDER_IDS}, **record}
        owner = {"tenant": DEFAULT_TENANT} if several.tenants and topic != DEAD_LETTER else {}
        yield ExpectedRecord(topic, {**owner, **_subject(item, record, newest, several), **record})


def _belongs(name: str, topic: str) -> bool:
    """Whether a field of the compact notation is one of the records of a topic."""
    return _BEGINS.get(name, topic) == topic and _RECORD_NAME.get(name, name) in _properties(topic)


def _subject(
    item: Node, record: Mapping[str, Any], newest: Newest | None, several: Ambiguous
) -> dict[str, Any]:
    """Whom a compact record is about, as far as it does not say so itself."""
    if "stream_id" in record:
        return {}
    if newest is None:
        raise item.error("no event has come before this: name the `stream_id`")
    source = {"source": newest.source} if several.sources and "source" not in record else {}
    return {**source, "stream_id": newest.stream_id}


def _compact_fields(item: Node) -> dict[str, Node]:
    """The fields of a compact record, known ones."""
    published = {name for topic in (MATCHES, BORDERS, DEAD_LETTER) for name in _properties(topic)}
    if "queries" in item.mapping():
        raise item.mapping()["queries"].error("is called `match` here")
    return item.fields((*_BEGINS, *sorted(published - _BEGINS.keys() - {"queries", "v"})))


def _value(topic: str, name: str, node: Node) -> Any:
    """What a field of a record is compared with. Raises RuleFileError where no record could ever have it."""
    schema = _properties(topic)[name]
    if name in ID_LISTS:
        return sorted(node.texts())
    allowed = schema.get("enum")
    if allowed is not None and node.value not in allowed:
        raise node.error(f"no record of {topic} says {node.shown()}; {suggestion(str(node.value), allowed)}")
    if schema.get("type") == "integer" and (isinstance(node.value, bool) or not isinstance(node.value, int)):
        raise node.error(f"must be a whole number, not {node.shown()}")
    return node.plain()


@cache
def _properties(topic: str) -> dict[str, Any]:
    """The fields of the records of a topic, as published."""
    text = (resources.files("service") / "schemas" / f"{topic}.json").read_text()
    properties: dict[str, Any] = json.loads(text)["properties"]
    return properties
