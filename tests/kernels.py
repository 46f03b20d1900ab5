"""Compiles the kernels, each once: else every process of the suite does it for itself, all at the same time.

python -m tests.kernels
"""

from __future__ import annotations

import importlib
import pkgutil
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

#: What one process compiles; the first part takes about as long as the second.
PARTS = (
    ("service.index.default", "service.engine"),
    ("service.index.border", "service.index.box", "service.index.interval"),
)


def compile_in(packages: tuple[str, ...]) -> None:
    """Imports every module of these packages, which is when kernels are compiled."""
    for name in packages:
        package = importlib.import_module(name)
        for module in pkgutil.iter_modules(package.__path__, f"{name}."):
            importlib.import_module(module.name)


def main() -> None:
    with ProcessPoolExecutor(len(PARTS), mp_context=get_context("spawn")) as processes:
        list(processes.map(compile_in, PARTS))


if __name__ == "__main__":
    main()
