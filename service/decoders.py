"""The decoder that a source needs, by its format.

The libraries of the binary formats are imported for the first source that needs them. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from service.decode import MOST_EVENTS, Decoder
from service.engine.categories import Dictionary
from service.model import Source
from service.rows import AnyDecoder

if TYPE_CHECKING:
    from service.decode_binary import BinaryDecoder


def decoder_of(
    source: Source,
    dictionaries: Mapping[str, Dictionary],
    *,
    max_bytes: int,
    max_events: int = MOST_EVENTS,
) -> AnyDecoder:
    """For the messages on the topic of a source; one in a binary format is one event."""
    if source.format is None:
        return Decoder(source, dictionaries, max_bytes=max_bytes, max_events=max_events)
    return binary_decoder(source, dictionaries, max_bytes=max_bytes)


def binary_decoder(
    source: Source, dictionaries: Mapping[str, Dictionary], *, max_bytes: int
) -> BinaryDecoder:
    """For a source whose messages are not JSON."""
    from service.decode_binary import BinaryDecoder

    return BinaryDecoder(source, dictionaries, max_bytes=max_bytes)
