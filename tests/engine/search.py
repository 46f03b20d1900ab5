"""The search for a history that the engine and its oracle do not agree on.

A *game* draws histories and plays them. The suite plays the same ones today and tomorrow, and what they find
is known (``faults``); ``soak`` goes on under seeds of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from random import Random
from traceback import walk_tb
from typing import Any, NamedTuple

from service.tenants import DEFAULT_TENANT, id_of, tenant_of
from tests.engine import recount
from tests.engine.histories import (
    IDS,
    History,
    Operation,
    collected,
    copied,
    history,
    jumping,
    portioned,
    shared,
)
from tests.engine.world import World, play

LINE, PLANE = ("x",), ("x", "y", "k")
_MOST_TRIES = 1_000
"""So often is a history that finds something made smaller and played again."""


class Game(NamedTuple):
    """``draw``: something with ``operations`` from a generator; the suite plays ``histories`` of them."""

    draw: Callable[[Random], Any]
    play: Callable[[Any], object]
    histories: int


def cut(history: History) -> None:
    """However batches are cut and whenever the engine is started anew, it says the same, to the byte, of each
    stream; among the streams that one command moves, the order may differ."""
    one, other = (play(history._replace(mode=mode)).driver.records() for mode in ("one", history.mode))
    assert sorted(one, key=lambda record: record[:2]) == sorted(other, key=lambda record: record[:2])


def portions(history: History) -> None:
    """However small the portions are in which commands are told, the same is told in the end, to the byte, of
    each stream."""
    one, other = (
        play(history._replace(mode=mode, portion=portion)).driver.records()
        for mode, portion in (("one", None), (history.mode, history.portion))
    )
    assert sorted(one, key=lambda record: record[:2]) == sorted(other, key=lambda record: record[:2])


def apart(history: History) -> None:
    """What a tenant is told is what it would be told, byte for byte, if it were alone and the default one:
    whoever else has queries on the source, with the same ids or others. Offsets of commands apart, which all
    share."""
    together = play(history)
    for tenant in sorted({DEFAULT_TENANT, *map(tenant_of, history.keys.values())}):
        own = {id: id_of(key) for id in IDS if tenant_of(key := history.keys.get(id, id)) == tenant}
        alone = play(history._replace(operations=list(_of(own, history.operations)), keys=own))
        assert _told(together, tenant) == _told(alone, DEFAULT_TENANT)


def _of(ids: Collection[str], operations: Iterable[Operation]) -> Iterator[Operation]:
    """Those operations that are about no other queries."""
    for operation, argument in operations:
        match operation:
            case "commands":
                yield operation, list(_of(ids, argument))
            case "put" | "patch" | "delete" | "quarantine":
                id = (
                    argument
                    if isinstance(argument, str)
                    else argument[0]
                    if operation == "patch"
                    else argument["id"]
                )
                if id in ids:
                    yield operation, argument
            case _:
                yield operation, argument


def _told(world: World, tenant: str) -> dict[tuple[str, bytes | None], list[Any]]:
    """The records of a tenant, by topic and key."""
    told: dict[tuple[str, bytes | None], list[Any]] = {}
    for topic, key, value in world.driver.records():
        record = json.loads(value)
        if record.get("tenant") == tenant:
            del record["tenant"]
            record["origin"].pop("command", None)
            told.setdefault((topic, key), []).append(list(record.items()))
    return told


GAMES = {
    "line": Game(lambda rng: history(rng, LINE, ("one", "restart")), play, 150),
    "plane": Game(lambda rng: history(rng, PLANE, ("one", "restart")), play, 150),
    "cuts": Game(
        lambda rng: history(rng, rng.choice((LINE, PLANE)), ("batch", "batch", "restart")), cut, 180
    ),
    "jumps": Game(lambda rng: jumping(rng, PLANE, ("one", "batch", "restart")), play, 100),
    "portions": Game(
        lambda rng: portioned(rng, rng.choice((LINE, PLANE)), ("one", "batch", "restart")), portions, 110
    ),
    "tenants": Game(lambda rng: shared(rng, PLANE, ("one", "batch", "restart")), apart, 40),
    "collections": Game(
        lambda rng: collected(rng, rng.choice((LINE, PLANE)), ("one", "batch", "restart")), cut, 60
    ),
    "copies": Game(
        lambda rng: copied(rng, rng.choice((LINE, PLANE)), ("one", "batch", "batch", "restart")), cut, 150
    ),
    "aggregates": Game(recount.draw, recount.play, 80),
}


def drawn(name: str, number: int, seed: int = 0) -> Any:
    """One history of a game."""
    return GAMES[name].draw(Random(f"{seed} {name} {number}"))


def search(name: str, numbers: range, seed: int = 0) -> int:
    """Plays some histories of a game; returns how many operations they had, events one by one. Raises what a
    play raises, for the smallest history found that does, with that as a note."""
    steps = 0
    for number in numbers:
        found = drawn(name, number, seed)
        steps += sum(len(what) if what_is == "events" else 1 for what_is, what in found.operations)
        try:
            GAMES[name].play(found)
        except Exception as error:
            small = smallest(GAMES[name], found, error)
            try:
                GAMES[name].play(small)
            except Exception as again:
                again.add_note(f"{name} {number} of seed {seed}, made small: {small!r}")
                raise
            raise
    return steps


def smallest(game: Game, found: Any, failure: Exception) -> Any:
    """Leaves out of a history what can be left out so that it still fails in the same way: by an error of the
    same kind, raised in the same function."""
    tries, again, wanted = 0, True, _kind(failure)
    while again:
        again = False
        for operations in _smaller(found.operations):
            tries += 1
            if tries > _MOST_TRIES:
                break
            candidate = found._replace(operations=operations)
            try:
                game.play(candidate)
            except Exception as error:
                if _kind(error) == wanted:  # else it is no history any more, or another story
                    found, again = candidate, True
                    break
    return found


def _kind(error: Exception) -> tuple[type[Exception], str]:
    *_, (frame, _) = walk_tb(error.__traceback__)
    return type(error), frame.f_code.co_qualname


def _smaller(operations: list[Operation]) -> Iterator[list[Operation]]:
    """Without a stretch, the longest first; then with something of one operation left out."""
    size = len(operations)
    while size := size // 2:
        for start in range(0, len(operations), size):
            yield operations[:start] + operations[start + size :]
    for place, (operation, argument) in enumerate(operations):
        for simpler in _simpler(argument):
            yield [*operations[:place], (operation, simpler), *operations[place + 1 :]]


def _simpler(argument: Any) -> Iterator[Any]:
    if isinstance(argument, dict):
        for name in argument:
            yield {other: value for other, value in argument.items() if other != name}
    elif isinstance(argument, list):
        for place in range(len(argument)):
            yield argument[:place] + argument[place + 1 :]
    if isinstance(argument, list | tuple):
        for place, part in enumerate(argument):
            for simpler in _simpler(part):
                yield type(argument)([*argument[:place], simpler, *argument[place + 1 :]])
