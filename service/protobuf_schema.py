"""Protobuf descriptors as far as this service reads them, and a message class of just what it reads.

Idea: the user hands over what ``protoc --descriptor_set_out --include_imports`` writes. Of the messages on
the declared paths all fields that no path names are taken out before the class is made: to the library they
are then fields that it does not know, which it passes over, however deep and many they are.

Fields are told apart by numbers, so a message of a newer version of the same type is read as well.

Not for: decoding (``decode_protobuf``). Pure. The library is imported where it is needed: a service without
such a source does without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

from service.literals import shown
from service.model import Reason, Refusal

MAX_DESCRIPTORS_BYTES = 500_000
MAX_FILES = 500

#: Files that come with the library, and the modules that have them.
_WELL_KNOWN = {
    f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
    for name in (
        *("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct"),
        *("timestamp", "type", "wrappers"),
    )
}
_WRAPPED_NUMBERS = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32")
_NUMBER_WRAPPERS = frozenset(f"google.protobuf.{name}Value" for name in _WRAPPED_NUMBERS)
_TEXT_WRAPPER = "google.protobuf.StringValue"
_TIMESTAMP = "google.protobuf.Timestamp"


class Wanted(StrEnum):
    """What a path is read as, and what may stand there."""

    KEY = "a string"
    TIME = "an integer (ms since 1970) or a google.protobuf.Timestamp"
    NUMBER = "a number"
    TEXT = "a string or an enum"
    ID = "a string, an enum or an integer"


class Path(NamedTuple):
    """``field`` is what the body of the source calls it; one that is ``optional`` may be missing."""

    steps: tuple[str, ...]
    wanted: Wanted
    field: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Leaf:
    """A path in the message. ``steps`` are the fields to its value; ``asked`` says for each whether it can be
    told to be set: if one is not, nothing is there. ``symbols`` are the names of an enum by number;
    ``is_time``: a Timestamp; ``is_unchecked``: a text that the library leaves as bytes where it is not UTF-8
    (of proto2, not of proto3)."""

    steps: tuple[str, ...]
    asked: tuple[bool, ...]
    symbols: Mapping[int, str] | None = None
    is_time: bool = False
    is_unchecked: bool = False


@dataclass(frozen=True, slots=True)
class Description:
    """``read`` makes a message of bytes; ``leaves`` are the paths in order, None for one that is not there;
    ``index`` is where the type stands in its file, from message to message within."""

    read: Callable[[bytes], Any]
    leaves: tuple[Leaf | None, ...]
    index: tuple[int, ...]


def describe(descriptors: bytes, message: str, paths: Sequence[Path]) -> Description:
    """The message type, read at these paths. O(bytes).

    Raises Refusal: ``format.descriptors`` and ``format.message``, or the field of a path that the type does
    not have or cannot serve."""
    from google.protobuf.message_factory import GetMessageClass

    files = _files(descriptors)
    try:
        found = _pool(files.values()).FindMessageTypeByName(message)
    except KeyError:
        known = ", ".join(sorted(name for file in files.values() for name, _ in _messages(file)))
        detail = f"{shown(message)} is no message of them ({shown(known)}); give its full name"
        raise Refusal(Reason.BAD_VALUE, "format.message", detail) from None
    kept: dict[str, set[str]] = {message: set()}
    leaves = tuple(_leaf(found, path, files, kept) for path in paths)
    for file in files.values():
        for name, declared in _messages(file):
            if name in kept:
                _prune(declared, kept[name])
    pruned = _pool(files.values()).FindMessageTypeByName(message)
    return Description(GetMessageClass(pruned).FromString, leaves, _index(found))


# ---- files


def _files(descriptors: bytes) -> dict[str, Any]:
    """The files by name, imports first, with those that come with the library."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
    from google.protobuf.message import DecodeError

    if len(descriptors) > MAX_DESCRIPTORS_BYTES:
        detail = f"has more than {MAX_DESCRIPTORS_BYTES} bytes; leave out what the message does not need"
        raise Refusal(Reason.LIMIT, "format.descriptors", detail)
    try:
        files: dict[str, Any] = {file.name: file for file in FileDescriptorSet.FromString(descriptors).file}
    except DecodeError:
        _refuse("is no FileDescriptorSet; protoc --include_imports --descriptor_set_out=FILE writes one")
    if len(files) > MAX_FILES:
        raise Refusal(Reason.LIMIT, "format.descriptors", f"has more than {MAX_FILES} files")
    missing = {name for file in files.values() for name in file.dependency if name not in files}
    while missing:
        name = missing.pop()
        if name not in _WELL_KNOWN:
            _refuse(f"imports {shown(name)}, which is not there; protoc --include_imports takes it in")
        files[name] = FileDescriptorProto()
        import_module(_WELL_KNOWN[name]).DESCRIPTOR.CopyToProto(files[name])
        missing.update(one for one in files[name].dependency if one not in files)
    try:
        order = TopologicalSorter(
            {name: list(file.dependency) for name, file in files.items()}
        ).static_order()
        return {name: files[name] for name in order}
    except CycleError:
        _refuse("imports itself")


def _pool(files: Iterable[Any]) -> Any:
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for file in files:
        try:
            pool.AddSerializedFile(file.SerializeToString())
        except TypeError as error:
            _refuse(f"{shown(file.name)} is not sound: {shown(str(error))}")
    return pool


def _messages(file: Any) -> Iterator[tuple[str, Any]]:
    """All messages that a file declares, by their full names."""
    prefix = f"{file.package}." if file.package else ""
    waiting = [(prefix + message.name, message) for message in file.message_type]
    while waiting:
        name, message = waiting.pop()
        yield name, message
        waiting += [(f"{name}.{inner.name}", inner) for inner in message.nested_type]


def _prune(message: Any, kept: set[str]) -> None:
    """Takes out the fields that are not kept. Of a oneof all stay if one does: they undo one another."""
    chosen = {field.oneof_index for field in message.field if field.name in kept and _in_oneof(field)}
    fields = [
        field
        for field in message.field
        if field.name in kept or (_in_oneof(field) and field.oneof_index in chosen)
    ]
    used = sorted({field.oneof_index for field in fields if field.HasField("oneof_index")})
    oneofs = [message.oneof_decl[i] for i in used]
    for field in fields:
        if field.HasField("oneof_index"):
            field.oneof_index = used.index(field.oneof_index)
    del message.field[:], message.oneof_decl[:]
    message.field.extend(fields)
    message.oneof_decl.extend(oneofs)


def _in_oneof(field: Any) -> bool:
    return bool(field.HasField("oneof_index") and not field.proto3_optional)


def _index(found: Any) -> tuple[int, ...]:
    """As the wire format of registries counts: the place among its neighbours, from the outermost on."""
    places: list[int] = []
    while found is not None:
        around = found.containing_type
        siblings = (
            around.nested_types if around is not None else list(found.file.message_types_by_name.values())
        )
        places.append(next(i for i, one in enumerate(siblings) if one.full_name == found.full_name))
        found = around
    return tuple(reversed(places))


# ---- paths


def _leaf(message: Any, path: Path, files: Mapping[str, Any], kept: dict[str, set[str]]) -> Leaf | None:
    """Where the path leads; notes what is needed of each message on the way."""
    steps: list[str] = []
    asked: list[bool] = []

    def step(message: Any, name: str) -> Any:
        field = message.fields_by_name.get(name)
        if field is None:
            if path.optional and not steps:
                return None
            detail = f"{message.full_name} has no field {shown(name)}; name another path, or leave it out"
            raise Refusal(Reason.BAD_VALUE, path.field, detail)
        if field.is_repeated:
            raise Refusal(
                Reason.BAD_VALUE, path.field, f"{field.full_name} is repeated; an event has one value of it"
            )
        kept.setdefault(message.full_name, set()).add(name)
        steps.append(name)
        asked.append(field.has_presence)
        return field

    field = step(message, path.steps[0])
    for name in path.steps[1:]:
        if field.message_type is None:
            detail = f"{field.full_name} has no fields of its own; name another path"
            raise Refusal(Reason.BAD_VALUE, path.field, detail)
        field = step(field.message_type, name)
    if field is None:
        return None
    inner = field.message_type
    if inner is not None:
        if path.wanted is Wanted.TIME and inner.full_name == _TIMESTAMP:
            kept.setdefault(inner.full_name, set()).update(("seconds", "nanos"))
            return Leaf(tuple(steps), tuple(asked), is_time=True)
        if inner.full_name in _NUMBER_WRAPPERS | {_TEXT_WRAPPER}:
            field = step(inner, "value")
    if not _serves(field, path.wanted):
        detail = f"{field.full_name} is not {path.wanted}; name another path, or leave it out"
        raise Refusal(Reason.BAD_VALUE, path.field, detail)
    symbols = None
    if field.enum_type is not None:
        symbols = {number: value.name for number, value in field.enum_type.values_by_number.items()}
    is_unchecked = field.type == field.TYPE_STRING and files[field.file.name].syntax != "proto3"
    return Leaf(tuple(steps), tuple(asked), symbols, is_unchecked=is_unchecked)


def _serves(field: Any, wanted: Wanted) -> bool:
    integers = (field.CPPTYPE_INT32, field.CPPTYPE_INT64, field.CPPTYPE_UINT32, field.CPPTYPE_UINT64)
    if wanted is Wanted.TIME:
        return field.cpp_type in integers
    if wanted is Wanted.NUMBER:
        return field.cpp_type in (*integers, field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE)
    if field.type == field.TYPE_STRING or (wanted is Wanted.ID and field.cpp_type in integers):
        return True
    return wanted in (Wanted.TEXT, Wanted.ID) and field.enum_type is not None


def _refuse(detail: str) -> NoReturn:
    raise Refusal(Reason.BAD_VALUE, "format.descriptors", detail)
