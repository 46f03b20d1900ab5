"""How the queries of a source are indexed: the chooser's choice, unless a setting says otherwise.

Not for: what the choices are (``index.default.chooser``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from service.index.default.chooser import STRUCTURES, Choose, chosen, only
from service.index.default.mixed import DefaultIndex
from service.model import Source

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Overrides:
    """What was asked for: for all, by source, by source and the attributes that a query constrains."""

    every: str
    by_source: Mapping[str, str]
    by_attributes: Mapping[tuple[str, frozenset[str]], str]


def read_overrides(text: str) -> Overrides:
    """Reads ``auto,ais=bitmaps,quotes:symbol+price=kd``. ValueError says what is wrong and what would do."""
    every = AUTO
    by_source: dict[str, str] = {}
    by_attributes: dict[tuple[str, frozenset[str]], str] = {}
    for entry in (part.strip() for part in text.split(",")):
        place, equals, structure = entry.rpartition("=")
        source, colon, attributes = place.partition(":")
        names = frozenset(attributes.split("+"))
        if equals and (not source or (colon and "" in names)):
            raise ValueError(f"must be NAME=STRUCTURE or NAME:X+Y=STRUCTURE, not {entry!r}")
        _require_fit(structure, len(names) if colon else None, entry)
        if colon:
            by_attributes[source, names] = structure
        elif equals:
            by_source[source] = structure
        else:
            every = structure
    return Overrides(every, by_source, by_attributes)


def _require_fit(structure: str, attributes: int | None, entry: str) -> None:
    """``attributes``: how many the boxes constrain, or None if any mixture must fit."""
    fitting = [
        name
        for name, one in STRUCTURES.items()
        if (one.mixed if attributes is None else one.fits(attributes))
    ]
    if structure not in (AUTO, *fitting):
        raise ValueError(f"{entry!r}: {structure!r} must be one of {', '.join([AUTO, *sorted(fitting)])}")


def index_of(source: Source, overrides: Overrides) -> DefaultIndex:
    """An empty index for the queries of a source. Large levels wait to be merged aside (``rebuilds``)."""
    return DefaultIndex(len(source.attributes), aside=True, choose=_choose(source, overrides))


def index_factory(overrides: Overrides) -> Callable[[Source], DefaultIndex]:
    return partial(index_of, overrides=overrides)


def _choose(source: Source, overrides: Overrides) -> Choose:
    structure = overrides.by_source.get(source.name, overrides.every)
    places = {name: place for place, name in enumerate(source.attributes)}
    asked = {
        frozenset(places[name] for name in names): wanted
        for (named, names), wanted in overrides.by_attributes.items()
        if named == source.name and names <= places.keys() and wanted != AUTO
    }
    if structure != AUTO and not asked:
        return only(structure)
    return partial(chosen, asked=asked, otherwise=None if structure == AUTO else structure)
