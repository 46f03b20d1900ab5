"""Content types of events: which go with which source.

A source in JSON takes whatever type a client says, other formats apart: tools that send JSON say many things.
"""

from __future__ import annotations

from fastapi import Request

from service.api.problems import ProblemError
from service.model import Avro, Source

AVRO = ("application/vnd.apache.avro", "avro/binary")
PROTOBUF = ("application/x-protobuf", "application/protobuf")
BINARY = (*AVRO, *PROTOBUF)


def media_of(request: Request) -> str:
    """The content type without its parameters, in small letters; empty where there is none."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def check_media(media: str, source: Source | None = None) -> None:
    """Raises ProblemError (415) where a body of that type is not what is read: the messages of a source, or,
    without one, JSON."""
    if source is None or source.format is None:
        if media in BINARY:
            reads = f"source {source.name!r}" if source else "this"
            raise _unsupported(f"{reads} reads JSON; send application/json or application/x-ndjson")
        return
    taken = AVRO if isinstance(source.format, Avro) else PROTOBUF
    if media not in taken:
        raise _unsupported(f"source {source.name!r} reads {' or '.join(taken)}, one event a request")


def _unsupported(detail: str) -> ProblemError:
    return ProblemError(415, "unsupported_media_type", "Content-Type", detail)
