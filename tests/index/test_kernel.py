"""The rules of a kernel, and the environment variables that change how it runs."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numba import types

import service
from service.index.kernel import kernel, reads, writes
from service.index.scan import scan

JIT = os.environ.get("NUMBA_DISABLE_JIT", "0") == "0"
CHECKED = os.environ.get("NUMBA_BOUNDSCHECK", "0") != "0"

# This function has no file, so no place on disk can be found for its machine code.
NOWHERE = """
def twice(values, out):
    for i in range(len(values)):
        out[i] = 2 * values[i]
"""


@kernel(types.int64(reads(types.int64, 1), types.int64))
def element(values, i):  # type: ignore[no-untyped-def]
    return values[i]


def test_a_kernel_without_a_place_for_its_cache_still_compiles() -> None:
    namespace: dict[str, object] = {}
    exec(NOWHERE, namespace)
    signature = types.void(reads(types.float64, 1), writes(types.float64, 1))
    twice = kernel(signature)(namespace["twice"])  # type: ignore[arg-type]
    out = np.zeros(2)
    twice(np.array([1.0, 4.0]), out)
    assert out.tolist() == [2.0, 8.0]


def test_a_kernel_that_does_not_compile_says_why() -> None:
    if JIT:
        with pytest.raises(Exception, match="missing"):
            kernel(types.int64(types.int64))(lambda x: x.missing())


def test_options_of_a_kernel() -> None:
    assert hasattr(scan, "targetoptions") == JIT
    if JIT:
        assert scan.targetoptions["nogil"] is True
        assert not scan.targetoptions.get("fastmath", False)


def test_arguments_of_a_kernel() -> None:
    """A read-only array is taken, another dtype or layout raises instead of compiling again."""
    values = np.arange(5)
    values.flags.writeable = False
    assert element(values, 3) == 3
    if JIT:
        for wrong in (np.arange(5.0), np.arange(5, dtype=np.int32), np.arange(10)[::2]):
            with pytest.raises(TypeError, match="No matching definition"):
                element(wrong, 3)


def test_the_environment_decides_how_kernels_run() -> None:
    if CHECKED or not JIT:
        with pytest.raises(IndexError):
            element(np.arange(5), 5)
    else:
        assert element(np.arange(5)[:4], 4) == 4  # unchecked: it reads what lies behind


def kernels() -> Iterator[tuple[str, ast.FunctionDef, set[str]]]:
    """Every function under ``@kernel``, in the service and in these tests: its file, its definition, what the
    file imports from the service."""
    files = [*Path(service.__file__).parent.rglob("*.py"), *Path(__file__).parent.rglob("*.py")]
    for path in sorted(files):
        tree = ast.parse(path.read_text())
        foreign = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("service")
            for alias in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and any(
                "kernel(" in ast.unparse(d) for d in node.decorator_list
            ):
                yield path.name, node, foreign


def test_kernels_name_no_global_of_another_module() -> None:
    """The cache on disk knows the text of one file only."""
    found = list(kernels())
    assert any(function.name == "scan" for _, function, _ in found)
    for file, function, foreign in found:
        named = {node.id for line in function.body for node in ast.walk(line) if isinstance(node, ast.Name)}
        assert not named & foreign, f"{file}: {function.name}"


def test_only_one_place_calls_numba() -> None:
    for path in Path(service.__file__).parent.rglob("*.py"):
        if path.name != "kernel.py":
            assert "njit" not in path.read_text(), path.name
