"""Dry runs: which queries would these events match? The same decoder and the same index as in earnest.

Nothing is remembered: no stream moves, nothing is carried, and a text that no query and no stream has named
gets no code of its own. Not for: borders, which need to know where a stream was.
"""

from __future__ import annotations

from collections.abc import Sequence

from service.decode import Decoder
from service.engine.categories import Dictionary
from service.engine.effects import Refused
from service.engine.engine import Engine
from service.log.port import Record


class _Reading(Dictionary):
    """A dictionary that gives no codes: texts it does not know share the next, where no text is wanted."""

    __slots__ = ()

    def __init__(self, dictionary: Dictionary) -> None:
        self._codes = dictionary._codes
        self.texts = dictionary.texts

    def code(self, text: str) -> float:
        return self._codes.get(text, float(len(self.texts)))


def try_events(
    engine: Engine, source: str, messages: Sequence[bytes], *, max_bytes: int
) -> list[list[str] | Refused]:
    """For every event of these messages, in order, the ids of the queries that it satisfies, sorted, or why
    it would be refused. O(bytes + one stab an event)."""
    queries = engine.sets[source]
    reading = {name: _Reading(dictionary) for name, dictionary in queries.dictionaries.items()}
    decoder = Decoder(queries.source, reading, max_bytes=max_bytes)
    decoded = decoder.decode([Record(i, 0, None, message) for i, message in enumerate(messages)])
    batch = decoded.batch
    found: dict[tuple[int, int], list[str] | Refused] = {
        (refused.offset, refused.item): refused for refused in decoded.refused
    }
    places = zip(batch.offsets.tolist(), batch.items.tolist(), strict=True)
    found |= dict(zip(places, engine.matching(source, batch.values), strict=True))
    return [found[place] for place in sorted(found)]
