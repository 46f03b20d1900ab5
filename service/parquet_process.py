"""Parquet files of whoever may send them, taken apart in a process of their own.

Idea: Arrow decodes in C++, and a file of a thousand bytes that are bent can end the process that reads it. So
the process that reads it is another one (``parquet_child``), with limits on its memory and its time; its end
is a refusal of the file, whatever it was. The file goes in and its rows come out through pipes, no more of
them at a time than a piece; nothing is on disk.

Invariant: of what the other process sends nothing is used before Arrow has found it whole, texts and offsets
included. Not for: what the rows mean (``members``); files of one's own (``cli.files``).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow
import pyarrow.ipc

from service.literals import shown
from service.model import Reason, Refusal
from service.parquet import Piece, Table
from service.parquet_child import REFUSED

# The system's allocator keeps to a limit on memory and says so; others reserve addresses ahead.
_SETTINGS = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "OPENBLAS_NUM_THREADS": "1"}

_CHILD = ("-P", "-m", "service.parquet_child")

_ENDS = {signal.SIGXCPU: "it takes too much processor time", signal.SIGALRM: "it takes too long"}


@contextlib.contextmanager
def unpacked(raw: bytes, most_bytes: int) -> Iterator[Table]:
    """The rows of a file, as long as it is open. Where they come to more than ``most_bytes`` (as ``parquet``
    counts) the last piece is empty and says so. Raises Refusal, as the pieces do: syntax."""
    command = [sys.executable, *_CHILD, str(len(raw)), str(most_bytes)]
    # No more of the environment than where the modules are: what else is in it may be secret.
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), **_SETTINGS}
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        process_group=0,  # Ctrl-C is for this process, which answers what it has begun
    ) as process:
        try:
            yield _table(process, raw)
        finally:
            process.kill()


def _table(process: subprocess.Popen[bytes], raw: bytes) -> Table:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(raw)
    try:
        stream = pyarrow.ipc.open_stream(process.stdout)
    except (pyarrow.ArrowException, OSError):
        raise _refusal(process) from None
    about = {name.decode(): int(value) for name, value in stream.schema.metadata.items()}
    return Table(stream.schema.names, about["rows"], about["bytes"], _pieces(process, stream))


def _pieces(process: subprocess.Popen[bytes], stream: Any) -> Iterator[Piece]:
    try:
        while True:
            batch, about = stream.read_next_batch_with_custom_metadata()
            try:
                batch.validate(full=True)
            except pyarrow.ArrowInvalid as error:
                raise _unreadable(str(error)) from None
            yield Piece(batch, int(about[b"bytes"]))
    except StopIteration:  # which is how a stream ends that is cut off between two pieces, too
        if process.wait():
            raise _refusal(process) from None
    except (pyarrow.ArrowException, OSError):
        raise _refusal(process) from None


def _refusal(process: subprocess.Popen[bytes]) -> Refusal:
    """Why the other process could not go on. Raises RuntimeError where that is not the file's fault."""
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    said = process.stderr.read().decode(errors="replace").strip()
    code = process.wait()
    if code < 0:
        end = signal.Signals(-code)
        return _unreadable(_ENDS.get(end, f"the reader breaks down over it ({end.name})"))
    if code != REFUSED:
        raise RuntimeError(f"the reader of Parquet ends with {code}: {said}")
    return _unreadable(" ".join(said.split()))


def _unreadable(why: str) -> Refusal:
    detail = f"cannot be read as Parquet: {shown(why)}; write the file anew, or send the table as CSV"
    return Refusal(Reason.SYNTAX, "", detail)
