"""Avro schemas as far as this service reads them: what they say, and whether they may be read at all.

Idea: a schema is data from outside, and the library that decodes by it trusts it. So it is read here first,
into a tree of ``Node`` without names, which is held against limits; from the tree a clean schema is made,
with what the bytes need and nothing else (no logical types, no defaults, names of our own). What the library
gets is that one.

Invariants of an accepted schema: it is a record, it is not recursive, and the bytes of a message bound the
time and the memory that decoding takes. The last is why an item of an array or a map must take at least a
byte, and at least a byte for each record in it: a count of 2**62 in front of items that take none would never
end.

Not for: decoding (``decode_avro``). Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from service.literals import shown
from service.model import Reason, Refusal

MAX_SCHEMA_BYTES = 200_000
MAX_DEPTH = 32
MAX_NODES = 2_000
#: Digits behind the point of a decimal, and bytes of a fixed.
MAX_SCALE = 1_000
MAX_FIXED = 1 << 20

_LEAST = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Logical types that are told apart here, and the types that they can be of.
_LOGICAL = {
    "decimal": ("bytes", "fixed"),
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    **{
        f"{zone}timestamp-{unit}": ("long",)
        for zone in ("", "local-")
        for unit in ("millis", "micros", "nanos")
    },
}
_NAMED = ("record", "error", "enum", "fixed")


@dataclass(frozen=True, slots=True)
class Node:
    """A type. ``inner``: the fields of a record, the branches of a union, the items of an array or a map,
    each with its name. ``logical`` is the logical type, "" for none. ``least`` is how many bytes a value
    takes at least, ``records`` how many records it is made of at most, those in arrays and maps apart."""

    kind: str
    inner: tuple[tuple[str, Node], ...] = ()
    symbols: tuple[str, ...] = ()
    size: int = 0
    logical: str = ""
    scale: int = 0
    least: int = 0
    records: int = 0

    def plain(self) -> tuple[Node, bool]:
        """The type without null, if it is a union of null and one other; and whether it is just one type."""
        if self.kind != "union":
            return self, True
        others = [node for _, node in self.inner if node.kind != "null"]
        return (others[0], True) if len(others) == 1 else (self, False)

    def field(self, name: str) -> Node | None:
        return next((node for known, node in self.inner if known == name), None)


def read_schema(given: Any) -> Node:
    """The tree of a schema. O(its size). Raises Refusal, whose field is a path into the schema."""
    try:
        if len(json.dumps(given)) > MAX_SCHEMA_BYTES:
            raise Refusal(
                Reason.LIMIT, "", f"has more than {MAX_SCHEMA_BYTES} bytes; leave out what is not needed"
            )
    except RecursionError:
        raise Refusal(Reason.LIMIT, "", f"is nested deeper than {MAX_DEPTH}; flatten it") from None
    root = _Reader().node(given, "", "", 0)
    if root.kind != "record":
        raise Refusal(Reason.BAD_VALUE, "", f"is a schema of type {root.kind}; an event is a record")
    return root


class _Reader:
    def __init__(self) -> None:
        #: by full name; None while it is read
        self._named: dict[str, Node | None] = {}
        self._nodes = 0

    def node(self, given: Any, namespace: str, at: str, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise Refusal(Reason.LIMIT, at, f"is nested deeper than {MAX_DEPTH}; flatten it")
        if isinstance(given, str):
            return self._count(self._reference(given, namespace, at), at)
        if isinstance(given, list):
            return self._count(self._union(given, namespace, at, depth), at)
        if not isinstance(given, dict):
            _refuse(at, "must be the name of a type, an object or a list")
        kind = given.get("type")
        if isinstance(kind, dict | list):  # {"type": {"type": ...}}: a type in a wrapping
            return self.node(kind, namespace, _under(at, "type"), depth + 1)
        if not isinstance(kind, str):
            _refuse(_under(at, "type"), "must name a type")
        if kind in _NAMED:
            return self._count(self._definition(kind, given, namespace, at, depth), at)
        if kind in ("array", "map"):
            return self._count(self._many(kind, given, namespace, at, depth), at)
        return self._count(_logical(self._reference(kind, namespace, at), given, at), at)

    def _count(self, node: Node, at: str) -> Node:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise Refusal(
                Reason.LIMIT, at, f"makes more than {MAX_NODES} types; leave out what is not needed"
            )
        return node

    def _reference(self, name: str, namespace: str, at: str) -> Node:
        if name in _LEAST:
            return Node(name, least=_LEAST[name])
        for full in (name, f"{namespace}.{name}"):
            if full in self._named:
                node = self._named[full]
                if node is None:
                    _refuse(at, f"{shown(name)} holds itself; events are not recursive")
                self._nodes += _size(node) - 1  # written once, read as often as it is named
                return node
        return _refuse(at, f"{shown(name)} is no type of Avro and none that is defined before")

    def _union(self, given: list[Any], namespace: str, at: str, depth: int) -> Node:
        branches = [self.node(one, namespace, f"{at}[{i}]", depth + 1) for i, one in enumerate(given)]
        if not branches or any(branch.kind == "union" for branch in branches):
            _refuse(at, "a union has one branch or more, none of them a union")
        return Node(
            "union",
            tuple((str(i), branch) for i, branch in enumerate(branches)),
            least=1 + min(branch.least for branch in branches),
            records=max(branch.records for branch in branches),
        )

    def _many(self, kind: str, given: Mapping[str, Any], namespace: str, at: str, depth: int) -> Node:
        field = "items" if kind == "array" else "values"
        place = _under(at, field)
        item = self.node(given.get(field), namespace, place, depth + 1)
        least = item.least + (kind == "map")
        if least < max(1, item.records):
            detail = f"takes {least} bytes for {item.records} records; give each a field that takes some"
            _refuse(place, detail)
        return Node(kind, ((field, item),), least=1)

    def _definition(self, kind: str, given: Mapping[str, Any], namespace: str, at: str, depth: int) -> Node:
        name = given.get("name")
        if not isinstance(name, str) or not all(map(_NAME.fullmatch, name.split("."))):
            _refuse(_under(at, "name"), "must be a name, with dots or without")
        own = given.get("namespace")
        space = name.rpartition(".")[0] if "." in name else own if isinstance(own, str) else namespace
        full = f"{space}.{name.rpartition('.')[2]}" if space else name
        if full in self._named:
            _refuse(_under(at, "name"), f"{shown(full)} is defined twice; name it the second time")
        self._named[full] = None
        if kind == "enum":
            node = _enum(given, at)
        elif kind == "fixed":
            node = _logical(_fixed(given, at), given, at)
        else:
            node = self._record(given, space, at, depth)
        self._named[full] = node
        return node

    def _record(self, given: Mapping[str, Any], namespace: str, at: str, depth: int) -> Node:
        fields = given.get("fields")
        if not isinstance(fields, list):
            _refuse(_under(at, "fields"), "must be a list of fields")
        inner: dict[str, Node] = {}
        for i, field in enumerate(fields):
            place = f"{_under(at, 'fields')}[{i}]"
            name = field.get("name") if isinstance(field, dict) else None
            if not isinstance(name, str) or not _NAME.fullmatch(name) or name in inner:
                _refuse(place, "must be an object with a name that no other field of the record has")
            inner[name] = self.node(field.get("type"), namespace, _under(place, "type"), depth + 1)
        return Node(
            "record",
            tuple(inner.items()),
            least=sum(node.least for node in inner.values()),
            records=1 + sum(node.records for node in inner.values()),
        )


def _size(node: Node) -> int:
    return 1 + sum(_size(inner) for _, inner in node.inner)


def _enum(given: Mapping[str, Any], at: str) -> Node:
    symbols = given.get("symbols")
    if not isinstance(symbols, list) or not symbols or not all(isinstance(one, str) for one in symbols):
        _refuse(_under(at, "symbols"), "must be a list of texts")
    if len(set(symbols)) < len(symbols) or not all(map(_NAME.fullmatch, symbols)):
        _refuse(_under(at, "symbols"), "must be names, each once")
    return Node("enum", symbols=tuple(symbols), least=1)


def _fixed(given: Mapping[str, Any], at: str) -> Node:
    size = given.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= MAX_FIXED:
        _refuse(_under(at, "size"), f"must be a whole number of bytes, at most {MAX_FIXED}")
    return Node("fixed", size=size, least=size)


def _logical(node: Node, given: Mapping[str, Any], at: str) -> Node:
    """The type with its logical type. One that Avro does not know, or not of this type, is passed over, as it
    wants it."""
    logical, scale = given.get("logicalType"), given.get("scale", 0)
    if not isinstance(logical, str) or node.kind not in _LOGICAL.get(logical, ()):
        return node
    if logical == "decimal":
        if not isinstance(scale, int) or isinstance(scale, bool) or not 0 <= scale <= MAX_SCALE:
            _refuse(_under(at, "scale"), f"must be a whole number from 0 to {MAX_SCALE}")
        return Node(node.kind, size=node.size, logical=logical, scale=scale, least=node.least)
    return Node(node.kind, symbols=node.symbols, size=node.size, logical=logical, least=node.least)


def _under(at: str, field: str) -> str:
    return f"{at}.{field}" if at else field


def _refuse(at: str, detail: str) -> NoReturn:
    raise Refusal(Reason.BAD_VALUE, at, detail)


class Cleaner:
    """Writes clean schemas; types that were named get names that nobody else has."""

    def __init__(self) -> None:
        self._names = 0

    def name(self) -> str:
        self._names += 1
        return f"T{self._names}"

    def schema(self, node: Node) -> Any:
        match node.kind:
            case "record":
                fields = [{"name": name, "type": self.schema(inner)} for name, inner in node.inner]
                return {"type": "record", "name": self.name(), "fields": fields}
            case "union":
                return [self.schema(inner) for _, inner in node.inner]
            case "array" | "map":
                ((field, item),) = node.inner
                return {"type": node.kind, field: self.schema(item)}
            case "enum":
                return {"type": "enum", "name": self.name(), "symbols": list(node.symbols)}
            case "fixed":
                return {"type": "fixed", "name": self.name(), "size": node.size}
        return node.kind


@dataclass(frozen=True, slots=True)
class Leaf:
    """What a schema has at a path: a type, alone or beside null; None where there is nothing. ``sure``: what
    stands there is of that type, or null, or missing because a record on the way is null."""

    node: Node | None
    sure: bool


def leaf_at(root: Node, path: tuple[str, ...]) -> Leaf:
    node: Node | None = root
    for part in path:
        assert node is not None
        node, single = node.plain()
        if not single or node.kind == "map":
            return Leaf(node, False)
        node = node.field(part) if node.kind == "record" else None
        if node is None:
            return Leaf(None, True)
    assert node is not None
    return Leaf(*node.plain())


INTEGERS = frozenset(("int", "long"))
NUMBERS = INTEGERS | {"float", "double"}
TEXTS = frozenset(("string", "enum"))
#: What divides a time of that logical type into ms.
PER_MS = {"": 1, "timestamp-millis": 1, "timestamp-micros": 1_000, "timestamp-nanos": 1_000_000}


def is_time(node: Node) -> bool:
    return node.kind in INTEGERS and node.logical in PER_MS


def is_text(node: Node) -> bool:
    return node.kind in TEXTS


def is_id(node: Node) -> bool:
    return node.kind in TEXTS | INTEGERS


def is_number(node: Node) -> bool:
    return node.kind in NUMBERS or (node.logical == "decimal" and node.kind in ("bytes", "fixed"))
