"""Categories as points of a dictionary-coded axis.

Every text of a category attribute gets the next whole number, exact in float64, in order of first sight.
A wanted text is then the interval ``[code, code + 1)``; "none of these" is what lies between and beyond them,
so a text that comes later is already inside. Codes live in memory only; the log holds texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from service.model import MISSING, Interval, Texts


class Dictionary:
    """Text to code and back for one attribute of one source."""

    __slots__ = ("_codes", "texts")

    def __init__(self) -> None:
        self._codes: dict[str, float] = {}
        self.texts: list[str] = []

    def code(self, text: str) -> float:
        """The code of a text, given to it now if it has none. O(1)."""
        code = self._codes.get(text)
        if code is None:
            code = self._codes[text] = float(len(self.texts))
            self.texts.append(text)
        return code

    def column(self, texts: Iterable[str | None]) -> NDArray[np.float64]:
        """Codes of many texts; None is a missing value."""
        code = self.code
        return np.array([MISSING if text is None else code(text) for text in texts], dtype=np.float64)

    def text(self, code: float) -> str | None:
        """The text of a code; None for a missing value."""
        return None if code == MISSING else self.texts[int(code)]

    def intervals(self, wanted: Texts) -> list[Interval]:
        """The stretches of the axis that a constraint allows, ascending."""
        codes = sorted(self.code(text) for text in wanted.values)
        if not wanted.negated:
            return [Interval(code, code + 1.0) for code in codes]
        ends = [0.0, *(code + 1.0 for code in codes)]
        return [Interval(lo, hi) for lo, hi in zip(ends, [*codes, float("inf")], strict=True) if lo < hi]


class Overlay(Dictionary):
    """What another dictionary knows, and codes of its own for further texts, of which the other hears
    nothing.

    For questions: what somebody asks about leaves no trace. Good as long as the other is not changed.
    """

    __slots__ = ("_known", "_known_texts")

    def __init__(self, known: Dictionary) -> None:
        super().__init__()
        self._known = known._codes
        self._known_texts = known.texts

    def code(self, text: str) -> float:
        code = self._known.get(text)
        if code is not None:
            return code
        code = self._codes.get(text)
        if code is None:
            code = self._codes[text] = float(len(self._known_texts) + len(self.texts))
            self.texts.append(text)
        return code

    def text(self, code: float) -> str | None:
        if code == MISSING:
            return None
        place, known = int(code), len(self._known_texts)
        return self._known_texts[place] if place < known else self.texts[place - known]


def overlays(dictionaries: Mapping[str, Dictionary]) -> dict[str, Dictionary]:
    """Dictionaries by attribute for one question: what it names and nobody else has leaves no trace."""
    return {name: Overlay(dictionary) for name, dictionary in dictionaries.items()}
