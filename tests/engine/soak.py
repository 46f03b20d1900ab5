"""``make soak``: the suite's search for a history that the engine and its oracle do not agree on goes on, for
a million operations under a seed of its own.

It goes in rounds of some histories of every game. A history follows from the seed and its number alone, so a
soak goes on where another ended, and what was found is found again by its round.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time

from tests.engine.search import GAMES, search

STEPS = 1_000_000
ROUND = 25
"""So many histories of each game."""


def soak(seed: int, first: int, steps: int, seconds: float) -> bool:
    """Plays from a round on until so many operations are done or so much time is over. Returns whether the
    engine and its oracle agreed on all of them."""
    begun_s = time.monotonic()
    number, done = first, 0
    print(f"seed {seed}, from round {first}: {steps:,} operations", flush=True)
    while done < steps and time.monotonic() - begun_s < seconds:
        for game in GAMES:
            try:
                done += search(game, range(number * ROUND, (number + 1) * ROUND), seed)
            except Exception as error:
                story = (repr(error), *getattr(error, "__notes__", ()), f"SEED={seed} FROM={number}")
                print(*story, sep="\n", file=sys.stderr)
                return False
        number += 1
        spent_s = time.monotonic() - begun_s
        print(f"rounds {first} to {number - 1}: {done:,} operations in {spent_s:.0f} s", flush=True)
    print(f"all agreed: {done:,} operations of seed {seed}; on with SEED={seed} FROM={number}", flush=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="random if not given")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the round to begin with")
    parser.add_argument("--steps", type=int, default=STEPS, help="operations to play")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="the longest that it may take")
    asked = parser.parse_args()
    return 0 if soak(asked.seed, asked.first, asked.steps, 60 * asked.minutes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
