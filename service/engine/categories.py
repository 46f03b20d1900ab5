"""Categories as points of a dictionary-coded axis.

Every text of a category attribute gets the next whole number, exact in float64, in order of first sight.
A wanted text is then the interval ``[code, code + 1)``; "none of these" is what lies between and beyond them,
so a text that comes later is already inside. Codes live in memory only; the log holds texts.

Texts that nothing has any more are forgotten now and then (``keep``), and others get their codes: what is
held is proportional to the texts that streams and queries have, not to those that they ever had.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from service.model import MISSING, Interval, Texts

_MANY = 1_000
"""So few texts need not be looked at."""


class Dictionary:
    """Text to code and back for one attribute of one source."""

    __slots__ = ("_codes", "_enough", "_free", "texts")

    def __init__(self) -> None:
        self._codes: dict[str, float] = {}
        self._free: list[float] = []
        self._enough = _MANY
        #: by code; of one that is free, ""
        self.texts: list[str] = []

    def __len__(self) -> int:
        """How many texts have a code."""
        return len(self._codes)

    @property
    def grown(self) -> bool:
        """Whether it is time for ``keep``. O(1)."""
        return len(self._codes) > self._enough

    def keep(self, codes: set[float], looked_at: int) -> None:
        """Forgets all texts but those of these codes: nothing holds any other. ``looked_at``: how many things
        had to be looked at to know; at least as many texts have to come before it is time again. O(texts)."""
        gone = [text for text, code in self._codes.items() if code not in codes]
        for text in gone:
            code = self._codes.pop(text)
            self.texts[int(code)] = ""
            self._free.append(code)
        self._enough = 2 * len(self._codes) + max(looked_at, _MANY)

    def code(self, text: str) -> float:
        """The code of a text, given to it now if it has none. O(1)."""
        code = self._codes.get(text)
        if code is None and self._free:
            code = self._codes[text] = self._free.pop()
            self.texts[int(code)] = text
        elif code is None:
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
