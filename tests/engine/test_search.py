"""What the search finds is made small, and it is found again by its number alone."""

from __future__ import annotations

from random import Random

from tests.engine.histories import History, history
from tests.engine.search import Game, drawn, smallest


def fails_after_two_waits_with_a_z(done: History) -> None:
    waited = 0
    for operation, argument in done.operations:
        waited += operation == "pass"
        assert not (waited >= 2 and operation == "event" and "z" in argument[2])


def test_a_history_is_made_as_small_as_what_it_shows() -> None:
    game = Game(lambda rng: history(rng, ("x",), ("one",)), fails_after_two_waits_with_a_z, 1)
    shown = 0
    for number in range(20):
        found = game.draw(Random(number))
        try:
            game.play(found)
        except AssertionError as error:
            shown += 1
            small = smallest(game, found, error)
            assert [name for name, _ in small.operations] == ["pass", "pass", "event"]
            assert list(small.operations[-1][1][2]) == ["z"]
    assert shown


def test_a_history_follows_from_its_seed_and_number() -> None:
    assert drawn("plane", 3, seed=1) == drawn("plane", 3, seed=1) != drawn("plane", 3)
    assert drawn("plane", 3) != drawn("plane", 4)
