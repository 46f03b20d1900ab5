"""Regions as boxes over the attributes of a source: the one form that indexes and answers to people take.

Idea: a conjunct is a product of stretches of the axes; an attribute that it does not name is free, ``-inf``
to ``inf``, which a missing value is inside too. A bound on texts may be several stretches, and a conjunct is
then as many boxes as there are combinations.

Not for: where the boxes go. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice, product
from typing import Any, NamedTuple

import numpy as np

from service.engine.categories import Dictionary
from service.index.protocol import Bounds, Slots
from service.model import Bound, Conjunct, Interval, Texts

_AT_A_TIME = 10_000
"""Regions whose boxes are tuples at one time: these take several times the room of the columns."""

_ALL = Interval(-np.inf, np.inf)
_FREE: Sequence[Interval] = [_ALL]


class Boxes(NamedTuple):
    """``[lo[i], hi[i])``, ``float64[n, d]`` twice, belongs to the number ``owners[i]``, ``int32[n]``."""

    owners: Slots
    lo: Bounds
    hi: Bounds


def boxes_of(
    numbered: Iterable[tuple[int, Iterable[Conjunct]]],
    attributes: Sequence[str],
    dictionaries: Mapping[str, Dictionary],
) -> Boxes:
    """The boxes of some unions of conjuncts without shapes under their numbers, in order. O(n d) for n boxes
    in d attributes."""
    dims, texts = len(attributes), dictionaries.keys()
    owners, los, his = [np.empty(0, np.int32)], [np.empty((0, dims))], [np.empty((0, dims))]
    left = iter(numbered)
    while some := list(islice(left, _AT_A_TIME)):
        rows: list[Sequence[Any]] = []
        counts: list[int] = []
        for _, conjuncts in some:
            before = len(rows)
            for conjunct in conjuncts:
                if texts.isdisjoint(conjunct):
                    rows.append([conjunct.get(name, _ALL) for name in attributes])
                else:
                    rows.extend(product(*_axes(conjunct, attributes, dictionaries)))
            counts.append(len(rows) - before)
        flat = np.fromiter(chain.from_iterable(chain.from_iterable(rows)), np.float64, 2 * len(rows) * dims)
        shaped = flat.reshape(len(rows), dims, 2)
        owners.append(np.repeat(np.array([number for number, _ in some], np.int32), counts))
        los.append(shaped[:, :, 0])
        his.append(shaped[:, :, 1])
    return Boxes(np.concatenate(owners), np.concatenate(los), np.concatenate(his))


def stretches(bound: Bound, dictionary: Dictionary | None) -> Sequence[Interval]:
    """What a bound allows on the axis of its attribute, ascending; a category has a dictionary."""
    if isinstance(bound, Interval):
        return [bound]
    assert isinstance(bound, Texts), "shapes are no bound of an axis"
    assert dictionary is not None, "texts bound categories only"
    return dictionary.intervals(bound)


def _axes(
    conjunct: Conjunct, attributes: Sequence[str], dictionaries: Mapping[str, Dictionary]
) -> list[Sequence[Interval]]:
    """For every attribute what a conjunct allows on its axis."""
    return [
        stretches(conjunct[name], dictionaries.get(name)) if name in conjunct else _FREE
        for name in attributes
    ]
