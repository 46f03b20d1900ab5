"""Takes a Parquet file apart in a process of its own: ``python -m service.parquet_child BYTES MOST_BYTES``.

Arrow's reader is not made for files that somebody has bent: what one finds in it may end the process, or use
all of its memory. So that is this process, which is given nothing else, no key and no connection, and has
limits on memory, on processor time and on how long it takes for one piece.

In: the file, so many bytes of standard input. Out: its rows as an Arrow IPC stream, in pieces as ``parquet``
cuts them. The schema says how many ``rows`` there are and what they come to at the least (``bytes``), each
piece what it comes to; where that makes more than MOST_BYTES a piece is empty and the last. What is wrong
with the file is told on standard error, in words, with the exit code REFUSED.

Imports Arrow and little else: it starts anew for each file. Not for: judging what comes out
(``parquet_process``), or what it means (``members``).
"""

from __future__ import annotations

import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import pyarrow
import pyarrow.ipc

from service import parquet

PIECE_BYTES = 16 << 20
"""Of a file so much is in memory as values of Python, or one row."""

CPU_S = 120
PIECE_S = 60

REFUSED = 3

#: Of the addresses that a process takes: for Python and Arrow, and what is so small that it is not counted.
_BASE_BYTES = 1 << 30


def main() -> None:
    size, most_bytes = map(int, sys.argv[1:])
    _limit(size, most_bytes)
    try:
        _write(sys.stdin.buffer.read(size), most_bytes, sys.stdout.buffer)
    except MemoryError:
        _refuse("it takes more memory than what it may unpack to")
    except Exception as error:  # of whatever kind: Arrow's readers raise many
        _refuse(str(error))


def _refuse(why: str) -> NoReturn:
    print(why, file=sys.stderr)
    sys.exit(REFUSED)


def _limit(size: int, most_bytes: int) -> None:
    """Of memory: for the file and, should it be one long text, that unpacked, in a dictionary, out of it, and
    as it is written."""
    memory = _BASE_BYTES + size + 4 * most_bytes
    for kind, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, CPU_S),
        (resource.RLIMIT_CORE, 0),  # which would have the file in it
    ):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    with suppress(OSError):  # not on every system: who is ended first where memory is short
        Path("/proc/self/oom_score_adj").write_text("1000")


def _write(raw: bytes, most_bytes: int, out: BinaryIO) -> None:
    signal.alarm(PIECE_S)
    file = parquet.opened(pyarrow.BufferReader(raw))
    stated = parquet.stated_bytes(file)
    about = {"rows": str(file.metadata.num_rows), "bytes": str(stated)}
    schema = pyarrow.schema([(field.name, _type(field)) for field in file.schema_arrow], about)
    with pyarrow.ipc.new_stream(out, schema) as stream:
        unpacked = stated if stated > most_bytes else 0
        pieces = parquet.pieces(file, PIECE_BYTES)
        while unpacked <= most_bytes and (piece := next(pieces, None)) is not None:
            unpacked += piece.size
            rows = piece.batch if unpacked <= most_bytes else piece.batch.slice(0, 0)
            batch = pyarrow.record_batch([parquet.whole(column) for column in rows.columns], schema=schema)
            signal.alarm(0)  # whoever reads may take his time
            stream.write_batch(batch, {"bytes": str(piece.size)})
            signal.alarm(PIECE_S)
        signal.alarm(0)
    out.flush()
    signal.alarm(PIECE_S)  # for what is left to do before the end


def _type(field: Any) -> Any:
    return field.type.value_type if pyarrow.types.is_dictionary(field.type) else field.type


if __name__ == "__main__":
    main()
