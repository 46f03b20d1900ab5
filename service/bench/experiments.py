"""All experiments, in the order in which they are published."""

from __future__ import annotations

import importlib

from service.bench.experiment import Experiment

MODULES: tuple[str, ...] = (
    "service.bench.targets",
    "service.bench.papers.vci",
    "service.bench.papers.cei",
    "service.bench.papers.vcr",
    "service.bench.papers.spatial_join",
    "service.bench.papers.bmq",
)
"""Modules with a tuple ``EXPERIMENTS``. Imported when asked for, since each compiles the kernels it needs."""


def experiments() -> tuple[Experiment, ...]:
    """The experiments of all modules. ValueError if two have one name."""
    found: list[Experiment] = []
    for module in MODULES:
        found.extend(importlib.import_module(module).EXPERIMENTS)
    names = [experiment.name for experiment in found]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"two experiments are named {', '.join(sorted(twice))}")
    return tuple(found)
