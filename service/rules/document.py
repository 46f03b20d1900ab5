"""YAML with lines: a file as a tree of nodes that know where they stand.

Idea: a rule test is JSON written by people, so YAML is read by the core schema of YAML 1.2: ``true`` and
``false`` are the only booleans (``on``, ``no`` and ``yes`` are texts), ``1e5`` is a number, ``12:30`` a text.
A date or time without quotes is whole ms since 1970 (UTC where it names no zone).

Refused, since it would be lost or guessed silently: a key twice, several documents, tags, merge keys, numbers
and texts that JSON cannot write. Refused too: aliases, a few lines of which can stand for more values than
any machine has room for. So a tree is no larger than its text, and at most ``_MOST_LEVELS`` deep. Numbers
keep their digits (``json_text``): the service reads what the file has.

Not for: what the fields mean (``scenarios``, ``expectations``).
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml

_NULLS = ("", "~", "null", "Null", "NULL")
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,9})?)?(Z|[+-][0-9]{2}:[0-9]{2})?)?"
)
_STEP_OF_PATH = re.compile(r"\[([0-9]+)\]|([^.\[\]]+)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: Deeper than any query, event or expectation; it keeps the reader from running out of stack.
_MOST_LEVELS = 60


class RuleFileError(Exception):
    """A file that is no rule test: line (from 1), field (a dotted path, "" for the whole), and why."""

    def __init__(self, line: int, field: str, detail: str) -> None:
        super().__init__(f"line {line}: {field}: {detail}" if field else f"line {line}: {detail}")
        self.line = line
        self.field = field
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the file. ``value`` is None, a boolean, number or text, a list or a dict of nodes;
    ``literal`` is a number as it was written."""

    value: Any
    line: int
    field: str
    literal: str | None = None

    def error(self, detail: str) -> RuleFileError:
        return RuleFileError(self.line, self.field, detail)

    def fields(self, known: Collection[str]) -> dict[str, Node]:
        """The fields of a mapping, all of them known. Raises RuleFileError."""
        for name, node in self.mapping().items():
            if name not in known:
                raise node.error(f"is no field here; {suggestion(name, known)}")
        return self.mapping()

    def mapping(self) -> dict[str, Node]:
        if not isinstance(self.value, dict):
            raise self.error(f"must be a mapping of fields, not {self.shown()}")
        return self.value

    def items(self) -> list[Node]:
        if not isinstance(self.value, list):
            raise self.error(f"must be a list, not {self.shown()}")
        return self.value

    def text(self) -> str:
        """A text that is not empty."""
        if not isinstance(self.value, str) or not self.value:
            raise self.error(f"must be a text, not {self.shown()}")
        return self.value

    def texts(self) -> list[str]:
        """A list of texts, or one text for a list of one."""
        return [self.text()] if isinstance(self.value, str) else [item.text() for item in self.items()]

    def choice(self, known: Collection[str]) -> str:
        """One of these texts."""
        if self.value not in known:
            raise self.error(f"{self.shown()} is not known; {suggestion(str(self.value), known)}")
        return self.text()

    def shown(self) -> str:
        """The value as it is quoted in an error: not more of it than a line can bear."""
        text = self.json_text()
        return text if len(text) <= 60 else f"{text[:57]}..."

    def plain(self) -> Any:
        """The value without lines, as ``json.loads`` would give it."""
        if isinstance(self.value, dict):
            return {name: node.plain() for name, node in self.value.items()}
        return [node.plain() for node in self.value] if isinstance(self.value, list) else self.value

    def json_text(self) -> str:
        """The value as JSON, numbers as they were written."""
        if isinstance(self.value, dict):
            return "{" + ", ".join(f"{_quoted(k)}: {n.json_text()}" for k, n in self.value.items()) + "}"
        if isinstance(self.value, list):
            return "[" + ", ".join(node.json_text() for node in self.value) + "]"
        return self.literal or _quoted(self.value)

    def reach(self, path: str) -> Node:
        """The node at a path such as ``where.any[0].lat``, or the last one on the way there."""
        node = self
        for place, name in _STEP_OF_PATH.findall(path):
            if place and isinstance(node.value, list) and int(place) < len(node.value):
                node = node.value[int(place)]
            elif name and isinstance(node.value, dict) and name in node.value:
                node = node.value[name]
            else:
                break
        return node


def suggestion(name: str, known: Collection[str]) -> str:
    """What somebody may have meant who wrote ``name``, as the end of a sentence."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"


def read_document(text: str) -> Node:
    """The one document of a file. Raises RuleFileError."""
    try:
        return _Composer(yaml.parse(text, Loader=yaml.SafeLoader)).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise RuleFileError(line, "", f"is no YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise RuleFileError(1, "", f"is no YAML: {error}") from None


class _Composer:
    """Events of the YAML parser to nodes."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events

    def document(self) -> Node:
        next(self._events)  # the stream starts
        if isinstance(next(self._events), yaml.StreamEndEvent):
            raise RuleFileError(1, "", "is empty; a rule test has `scenarios`")
        root = self._node(next(self._events), "", 0)
        next(self._events)  # the document ends
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            raise RuleFileError(after.start_mark.line + 1, "", "a second document begins; one file has one")
        return root

    def _node(self, event: Any, field: str, level: int) -> Node:
        line = event.start_mark.line + 1
        if event.anchor is not None:
            detail = "anchors and aliases are not read; what scenarios share stands at the top of the file"
            raise RuleFileError(line, field, detail)
        if event.tag is not None:
            raise RuleFileError(line, field, f"tags such as {event.tag} are not read; put a text in quotes")
        if level > _MOST_LEVELS:
            raise RuleFileError(line, field, "is nested too deep; no test needs that")
        if isinstance(event, yaml.ScalarEvent):
            return _scalar(event, line, field)
        if isinstance(event, yaml.SequenceStartEvent):
            return Node(list(self._items(field, level)), line, field)
        return Node(self._fields(field, level), line, field)

    def _items(self, field: str, level: int) -> Iterator[Node]:
        place = 0
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            yield self._node(event, f"{field}[{place}]", level + 1)
            place += 1

    def _fields(self, field: str, level: int) -> dict[str, Node]:
        found: dict[str, Node] = {}
        while not isinstance(key := next(self._events), yaml.MappingEndEvent):
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarEvent) or key.tag is not None:
                raise RuleFileError(line, field, "the name of a field must be a text")
            _check_text(key.value, line, field)
            inner = f"{field}.{key.value}" if field else key.value
            if key.value == "<<" and key.implicit[0]:
                raise RuleFileError(line, inner, "merge keys are not read; write the fields out")
            if key.value in found:
                raise RuleFileError(line, inner, "stands twice in one mapping; keep the one that you mean")
            node = self._node(next(self._events), inner, level + 1)
            # A field is looked for at its name, wherever its value begins.
            found[key.value] = Node(node.value, line, inner, node.literal)
        return found


def _scalar(event: Any, line: int, field: str) -> Node:
    text: str = event.value
    _check_text(text, line, field)
    if not event.implicit[0]:
        return Node(text, line, field)
    if text in _NULLS:
        return Node(None, line, field)
    if text in _BOOLEANS:
        return Node(_BOOLEANS[text], line, field)
    if _TIME.fullmatch(text):
        return _time(text, line, field)
    if _NO_NUMBER.fullmatch(text):
        detail = f"{text} is no JSON number; `raw` sends what no JSON can say"
        raise RuleFileError(line, field, detail)
    integer, is_float = _INTEGER.fullmatch(text), _FLOAT.fullmatch(text)
    if not integer and not is_float:
        return Node(text, line, field)
    try:
        number: int | float = int(text, 0 if text[:2] in ("0o", "0x") else 10) if integer else float(text)
        written = text if _JSON_NUMBER.fullmatch(text) else json.dumps(number)
    except ValueError:  # Python converts 4,300 digits at most
        raise RuleFileError(line, field, "is too long a number; `raw` sends any text") from None
    if isinstance(number, float) and math.isinf(number) and written != text:
        raise RuleFileError(line, field, f"write {text} as JSON does, without a sign + and with digits first")
    return Node(number, line, field, written)


def _check_text(text: str, line: int, field: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        detail = "has half of a surrogate pair; `raw_hex` sends any bytes"
        raise RuleFileError(line, field, detail) from None


def _time(text: str, line: int, field: str) -> Node:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        raise RuleFileError(line, field, f"{text} is no time ({error}); put a text in quotes") from None
    instant = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    return Node((instant - _EPOCH) // timedelta(milliseconds=1), line, field)


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
