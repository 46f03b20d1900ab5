"""The one way to compile a kernel.

A kernel is a function over C-contiguous arrays with the loop inside. Rules that hold for every one:

* It releases the GIL, so a stab on one thread never stops the others.
* No ``fastmath``: it makes NaN equal to itself.
* Its signature is explicit. It is compiled when its module is imported, before the first event, and a wrong
  dtype raises instead of compiling again in the stream. What a kernel only reads is declared with ``reads``:
  it then takes arrays that are not writable (a mapped file, a column of another process) and writes none.
* It never writes past its output. It returns the number of elements needed and the caller grows and retries.
* It names no global of another module. The machine code is cached on disk under the text of its own file
  alone, so what comes from elsewhere (a kernel, an instruction, a constant) could go stale there. A test
  holds this.

The cache lies where numba finds a writable place: ``NUMBA_CACHE_DIR``, ``__pycache__`` beside the module, the
user's cache directory. Where there is none (a read-only file system) the kernels are compiled at each start.
With ``NUMBA_BOUNDSCHECK`` set the cache is left alone: its key does not tell checked from unchecked code.
``NUMBA_DISABLE_JIT=1`` leaves plain Python.

Not for: choosing an algorithm, or branches that need no loop; those belong in the caller.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable

Function = Callable[..., Any]


def reads(dtype: Any, ndim: int) -> Any:
    """The type of a C-contiguous array that a kernel only reads, for signatures."""
    return types.Array(dtype, ndim, "C", readonly=True)


def writes(dtype: Any, ndim: int) -> Any:
    """The type of a C-contiguous array that a kernel writes, for signatures."""
    return types.Array(dtype, ndim, "C")


def kernel(signature: Any) -> Callable[[Function], Function]:
    """Compiles a function for one signature (numba's text or types), at once, or loads it from the cache."""

    def compiled(function: Function) -> Function:
        if "NUMBA_BOUNDSCHECK" not in os.environ:
            try:
                return _jit(signature, function, cache=True)
            except Exception:
                # No writable place, a full disk, a torn file: a cache may cost time, never a start. Whatever
                # is not the cache's fault is raised again below.
                pass
        return _jit(signature, function, cache=False)

    return compiled


def instruction(build: Function) -> Callable[[Function], Function]:
    """A function of few machine instructions, for kernels of the same file, that no loop is compiled to.

    ``build`` says which, as numba's ``intrinsic`` takes it. The decorated function is the slow twin: without
    the JIT it runs instead, and where accesses are checked it is compiled instead."""

    def chosen(twin: Function) -> Function:
        if config.DISABLE_JIT:  # type: ignore[attr-defined]
            return twin
        if "NUMBA_BOUNDSCHECK" in os.environ:
            checked: Function = register_jitable(twin)
            return checked
        machine: Function = intrinsic(build)
        return machine

    return chosen


def prefetching(locality: int) -> Function:
    """What builds an ``instruction`` of an array and the number of an element (uint64, in the order of the
    memory) that has it brought into the cache meanwhile, to be read. ``locality``, as LLVM has it: 3 is the
    nearest cache, 2 the second. A hint: machine code on disk that has another is slower at worst."""

    def prefetch(_context: Any, array: Any, at: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            elements = context.make_array(signature.args[0])(context, builder, args[0]).data
            number, address = ir.IntType(32), ir.IntType(8).as_pointer()
            kind = ir.FunctionType(ir.VoidType(), [address, number, number, number])
            fetch = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
                builder.module, kind, "llvm.prefetch.p0"
            )
            place = builder.bitcast(builder.gep(elements, [args[1]]), address)
            builder.call(fetch, [place, number(0), number(locality), number(1)])  # to read; as data
            return context.get_dummy_value()

        return types.void(array, types.uint64), build

    return prefetch


def _jit(signature: Any, function: Function, *, cache: bool) -> Function:
    jitted: Function = numba.njit(signature, nogil=True, cache=cache)(function)
    return jitted
