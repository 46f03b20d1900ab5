"""Expected against written records, as a diff that a person can read.

An expected record takes the first written one that agrees in whom it is about (``tenant``, ``source``,
``stream_id`` or, of an aggregate, ``query``, as far as it names them); then field is compared with field. So
the order between streams does not count, and that of one stream's borders does. Records of the other topics
have no order of their own: there one that agrees wholly is taken before another.

Not for: what the fields mean; a set of ids is the only field that is looked into.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from service.log.topics import BORDERS, OUTPUTS
from service.rules.expectations import ID_LISTS, Expected, ExpectedRecord

Record = Mapping[str, Any]

_IDENTITY = ("tenant", "source", "stream_id", "query")
#: Fields that are always shown, where the record has something in them.
_TELLING = {
    "matches": ("stream_id", "queries", "late"),
    "borders": ("stream_id", "leave", "enter", "cross", "reason"),
    "aggregates": ("query", "ts", "count", "of"),
    "dead_letter": ("stream_id", "reason", "detail"),
}
_ABSENT = object()
_MOST_IDS = 12
_PLAIN_TEXT = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_NOT_PLAIN = frozenset(("null", "true", "false"))


class Line(NamedTuple):
    """A line of a diff: ``-`` expected, ``+`` written, a blank for both, ``@`` a heading or a remark."""

    sign: str
    text: str


class _Pair(NamedTuple):
    expected: ExpectedRecord | None
    written: Record | None


def compare(expected: Expected, written: Mapping[str, Sequence[Record]]) -> list[Line]:
    """The differences, by topic, with what agrees in between; nothing where all agrees. O(records^2)."""
    lines: list[Line] = []
    for topic in OUTPUTS:
        if topic in expected.topics:
            wanted = [record for record in expected.records if record.topic == topic]
            lines += _compare_topic(topic, wanted, written[topic])
    return lines


def _compare_topic(topic: str, wanted: Sequence[ExpectedRecord], written: Sequence[Record]) -> list[Line]:
    pairs = _pairs(wanted, written, in_order=topic == BORDERS)
    also = [name for name in ("tenant", "source") if len({record.get(name) for record in written}) > 1]
    told = [_told(topic, pair, also=also) for pair in pairs]
    if all(line.sign == " " for lines in told for line in lines):
        return []
    return [Line("@", topic), *(line for lines in told for line in lines)]


def _pairs(wanted: Sequence[ExpectedRecord], written: Sequence[Record], *, in_order: bool) -> list[_Pair]:
    """In the order of the expectations; what nobody expected is last."""
    left = dict(enumerate(written))
    found: dict[int, Record] = {}

    def choose(place: int, fields: Record) -> None:
        for number, record in left.items():
            if all(_agrees(name, value, record) for name, value in fields.items()):
                found[place] = left.pop(number)
                return

    # Those that say most about whom they want choose first.
    places = sorted(range(len(wanted)), key=lambda place: -len(_subject(wanted[place].fields)))
    if not in_order:
        for place in places:
            choose(place, wanted[place].fields)
    for place in places:
        if place not in found:
            choose(place, _subject(wanted[place].fields))
    pairs = [_Pair(record, found.get(place)) for place, record in enumerate(wanted)]
    return pairs + [_Pair(None, record) for record in left.values()]


def _subject(fields: Record) -> Record:
    """Whom a record is about."""
    return {name: fields[name] for name in _IDENTITY if name in fields}


def _told(topic: str, pair: _Pair, also: Sequence[str]) -> list[Line]:
    """``also``: fields without which it is not clear whom a record is about."""
    if pair.expected is None:
        assert pair.written is not None
        return [Line("+", _shown(pair.written, _names(topic, pair.written, also=also)))]
    fields = pair.expected.fields
    if pair.written is None:
        return [Line("-", _shown(fields, _names(topic, fields, also=fields)))]
    differing = [name for name, value in fields.items() if not _agrees(name, value, pair.written)]
    if not differing:
        return [Line(" ", _shown(fields, _names(topic, fields)))]
    lines = [
        Line("-", _shown(fields, _names(topic, fields, also=differing))),
        Line("+", _shown(pair.written, _names(topic, pair.written, also=differing))),
    ]
    return lines + [_apart(name, fields, pair.written) for name in differing if _is_long(name, fields, pair)]


def _agrees(name: str, value: Any, written: Record) -> bool:
    if value is False:  # flags of records are true or not there
        return not written.get(name, False)
    return bool(written.get(name, _ABSENT) == value)


def _is_long(name: str, fields: Record, pair: _Pair) -> bool:
    assert pair.written is not None
    return name in ID_LISTS and max(len(fields[name]), len(pair.written.get(name, ()))) > _MOST_IDS


def _apart(name: str, fields: Record, written: Record) -> Line:
    """Where two long lists of ids differ."""
    wanted, found = set(fields[name]), set(written.get(name, ()))
    missing, extra = sorted(wanted - found), sorted(found - wanted)
    return Line("@", f"{name}: missing {_value(name, missing)}, unexpected {_value(name, extra)}")


def _names(topic: str, record: Record, also: Iterable[str] = ()) -> list[str]:
    """The fields to show: those that tell most, if they say anything, and ``also`` these."""
    first = _TELLING.get(topic, tuple(record))
    telling = {name for name in first if _says_something(record.get(name))}
    wanted = telling.union(also, ("stream_id",))
    return [*(name for name in first if name in wanted), *sorted(wanted.difference(first))]


def _says_something(value: Any) -> bool:
    """A count of 0 does."""
    return value is not None and value is not False and value != []


def _shown(record: Record, names: Sequence[str]) -> str:
    fields = (f"{name}: {_value(name, record[name])}" for name in names if name in record)
    return "{" + ", ".join(fields) + "}"


def _value(name: str, value: Any) -> str:
    """A value in YAML, on one line."""
    if isinstance(value, list):
        shown = [_value("", item) for item in value[:_MOST_IDS]]
        if len(value) > _MOST_IDS:
            shown.append(f"... {len(value)} in all")
        return "[" + ", ".join(shown) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(key)}: {_value(key, item)}" for key, item in value.items()) + "}"
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _text(text: str) -> str:
    plain = _PLAIN_TEXT.fullmatch(text) and text.lower() not in _NOT_PLAIN
    return text if plain else json.dumps(text, ensure_ascii=False)
