"""Runs experiments one after another; one that fails does not stop the others.

Not for: choosing them (``experiments``), or showing what came out (``report``, the command line).
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from service.bench.experiment import Experiment, Result, Scale
from service.bench.measure import Disagreement


class UnknownExperiment(ValueError):
    """No experiment has a name that was asked for."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an experiment: a result, or how it failed. ``seconds`` it took."""

    experiment: Experiment
    seconds: float
    result: Result | None
    failure: str = ""


def chosen(experiments: Iterable[Experiment], patterns: Iterable[str]) -> list[Experiment]:
    """The experiments with a name that is one of ``patterns`` or fits it (``cei-*``), in their own order; all
    of them without a pattern. Raises UnknownExperiment for a pattern that fits none."""
    everything, wanted = list(experiments), list(patterns)
    for pattern in wanted:
        if not any(fnmatchcase(experiment.name, pattern) for experiment in everything):
            raise UnknownExperiment(f"there is no experiment {pattern}")
    return [
        experiment
        for experiment in everything
        if not wanted or any(fnmatchcase(experiment.name, pattern) for pattern in wanted)
    ]


def run(
    experiments: Iterable[Experiment], scale: Scale, seed: int, *, begun: Callable[[Experiment], None]
) -> Iterator[Outcome]:
    """The outcome of each, as it comes; ``begun`` is called before each."""
    for experiment in experiments:
        begun(experiment)
        start = time.perf_counter()
        try:
            result, failure = experiment.run(scale, seed), ""
        except Disagreement as error:
            result, failure = None, str(error)
        except Exception:
            # What is measured may be broken; that should not cost what the other experiments find.
            result, failure = None, traceback.format_exc()
        yield Outcome(experiment, time.perf_counter() - start, result, failure)
