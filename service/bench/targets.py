"""What the default index should reach: an experiment a target, and those where it loses."""

from __future__ import annotations

from service.bench import targets_chooser, targets_losses, targets_moves, targets_stab, targets_writes
from service.bench.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = (
    *targets_stab.EXPERIMENTS,
    *targets_writes.EXPERIMENTS,
    *targets_moves.EXPERIMENTS,
    *targets_losses.EXPERIMENTS,
    *targets_chooser.EXPERIMENTS,
)
