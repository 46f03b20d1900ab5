"""How a fault is planted into the running engine and taken out again; the engine's files stay as they are.

A fault is an edit of the text of one function. What it replaces must stand there exactly once: when the
engine changes, its faults change with it, or the suite says so.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from types import FunctionType
from typing import Any, NamedTuple

import pytest

from tests.engine.kept import KEPT
from tests.engine.search import GAMES, drawn
from tests.engine.world import play

#: Games with operations or faults that others have not.
_OF_THEIR_OWN = ("aggregates", "collections", "copies")


class Fault(NamedTuple):
    """``what`` goes wrong when ``old`` becomes ``new`` in the text of a function or method ``owner.name``.
    ``game`` and ``number``: a history that finds it; of the game "kept" they are those of ``kept``."""

    what: str
    owner: Any
    name: str
    old: str
    new: str
    game: str
    number: int


def plant(fault: Fault, patch: pytest.MonkeyPatch) -> None:
    """Makes the engine faulty until the patch is undone. A kernel is replaced by plain Python."""
    found = getattr(fault.owner, fault.name)
    function: FunctionType = getattr(found, "py_func", found)
    edited = _edited(function, fault)
    if found is function:
        patch.setattr(function, "__code__", edited.__code__)
    else:
        patch.setattr(fault.owner, fault.name, edited)


def _edited(function: FunctionType, fault: Fault) -> FunctionType:
    text = textwrap.dedent(inspect.getsource(function))
    text = text[text.index("def ") :]  # not what decorates it
    assert text.count(fault.old) == 1, f"{fault.name} has {text.count(fault.old)} times {fault.old!r}"
    code = compile(text.replace(fault.old, fault.new), inspect.getfile(function), "exec")
    made: dict[str, Any] = {}
    exec(code, function.__globals__, made)
    edited: FunctionType = made[function.__name__]
    return edited


def finds(game: str, number: int) -> bool:
    """Whether a history of the suite tells the engine from its oracle, by an assertion."""
    try:
        if game == "kept":
            play(KEPT[number])
        else:
            GAMES[game].play(drawn(game, number))
    except AssertionError:
        return True
    return False


def finders(fault: Fault) -> Iterator[tuple[str, int]]:
    """Of all histories that the suite plays those that find a planted fault, its own first."""
    games = [fault.game] if fault.game in _OF_THEIR_OWN else ["line", "plane", "cuts", "jumps"]
    numbered = [(game, number) for game in games for number in range(GAMES[game].histories)]
    kept = [("kept", number) for number in range(len(KEPT))]
    rest = kept + sorted(numbered, key=lambda one: one[1])
    return ((game, number) for game, number in [(fault.game, fault.number), *rest] if finds(game, number))


def _main() -> None:
    from tests.engine.faults import FAULTS

    for fault in FAULTS:
        with pytest.MonkeyPatch.context() as patch:
            plant(fault, patch)
            print(fault.what, next(finders(fault), None), sep=": ", flush=True)


if __name__ == "__main__":
    _main()
