"""The random histories are worth something: those that the suite plays find each fault that is planted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.faults import FAULTS, Fault, plant
from tests.engine.search import GAMES, drawn


def finds(game: str, number: int) -> bool:
    """Whether a history tells the engine from its oracle, by an assertion."""
    try:
        GAMES[game].play(drawn(game, number))
    except AssertionError:
        return True
    return False


def _histories(fault: Fault) -> Iterator[tuple[str, int]]:
    """Those of the suite; first the one that found it when it was planted first."""
    yield fault.game, fault.number
    games = ["aggregates"] if fault.game == "aggregates" else ["line", "plane", "cuts"]
    for number in range(max(GAMES[game].histories for game in games)):
        yield from ((game, number) for game in games if number < GAMES[game].histories)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_the_histories_of_the_suite_find(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fault.number < GAMES[fault.game].histories
    with monkeypatch.context() as patch:
        plant(fault, patch)
        found = next((one for one in _histories(fault) if finds(*one)), None)
    assert found is not None
    assert not finds(*found), "it was not the fault"
