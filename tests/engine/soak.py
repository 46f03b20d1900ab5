"""``make soak``: the search of the suite, gone on with for a million operations under seeds of its own.

It goes in rounds, each of some histories of every game under a seed that follows from that of the whole and
the number of the round; so a soak that was ended goes on with the round that it says, and what a round finds,
that round alone finds again.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time

from tests.engine.search import GAMES, search

STEPS = 1_000_000
EXAMPLES = 50


def soak(seed: int, first: int, steps: int, minutes: float | None) -> bool:
    """Plays until so many operations have been played or so much time is over; whether all of them agreed."""
    begun, played, histories, number = time.monotonic(), 0, 0, first
    print(f"seed {seed}, from round {first}, until {steps:,} steps", flush=True)
    while played < steps:
        spent_s = time.monotonic() - begun
        if minutes is not None and spent_s >= 60 * minutes:
            break
        for name, game in GAMES.items():
            try:
                more, further = search(game, seed=_seed(seed, number), examples=EXAMPLES)
            except Exception as error:
                print(f"round {number} of seed {seed}, {name}: {error!r}", file=sys.stderr)
                print(*getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)
                print(f"repeat it: make soak SEED={seed} FROM={number}", file=sys.stderr)
                return False
            histories, played = histories + more, played + further
        number += 1
        spent_s = time.monotonic() - begun
        print(f"round {number}: {histories:,} histories, {played:,} steps, {spent_s:.0f} s", flush=True)
    print(f"clean: {played:,} steps of seed {seed}; go on: make soak SEED={seed} FROM={number}", flush=True)
    return True


def _seed(seed: int, number: int) -> int:
    return seed * 1_000_003 + number


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, default=None, help="one is drawn and printed where there is none")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the round to begin with")
    parser.add_argument("--steps", type=int, default=STEPS, help="operations to play")
    parser.add_argument("--minutes", type=float, default=None, help="end after so long, whatever was played")
    asked = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if asked.seed is None else asked.seed
    return 0 if soak(seed, asked.first, asked.steps, asked.minutes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
