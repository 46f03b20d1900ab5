"""Parquet files that are taken apart in another process, and what becomes of that."""

from __future__ import annotations

import io
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from service import parquet_process
from service.model import Reason, Refusal
from service.parquet_process import unpacked

MOST_BYTES = 1 << 20


def parquet(rows_in_group: int = 1_000_000, **columns: Any) -> bytes:
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), out, row_group_size=rows_in_group)
    return out.getvalue()


FILE = parquet(2, id=["a", None, "c"], n=[1, 2, 3], tags=[["x", "y"], [], ["x"]])


def rows(raw: bytes, most_bytes: int = MOST_BYTES) -> list[tuple[object, ...]]:
    with unpacked(raw, most_bytes) as table:
        return [row for piece in table.pieces for row in zip(*piece.columns(), strict=True)]


def refused(monkeypatch: pytest.MonkeyPatch, code: str) -> str:
    """The words for a file whose reader is this code."""
    monkeypatch.setattr(parquet_process, "_CHILD", ("-P", "-c", code))
    with pytest.raises(Refusal) as found:
        rows(FILE)
    assert (found.value.reason, found.value.field) == (Reason.SYNTAX, "")
    assert found.value.detail.startswith("cannot be read as Parquet: ")
    assert found.value.detail.endswith("; write the file anew, or send the table as CSV")
    return found.value.detail


def test_rows_come_in_order_with_what_the_file_says_of_them() -> None:
    with unpacked(FILE, MOST_BYTES) as table:
        assert (table.names, table.rows) == (["id", "n", "tags"], 3)
        assert 0 < table.stated_bytes < MOST_BYTES
        assert sum(len(piece.batch) for piece in table.pieces) == 3
    assert rows(FILE) == [("a", 1, ["x", "y"]), (None, 2, []), ("c", 3, ["x"])]
    assert rows(parquet(id=[])) == []


def test_who_has_seen_enough_leaves() -> None:
    with unpacked(parquet(id=[f"{i:0100}" for i in range(20_000)]), 64 << 20) as table:
        assert next(table.pieces).batch.num_rows > 0


def test_no_more_comes_than_a_file_may_unpack_to() -> None:
    many = parquet(id=["a" * 1_000] * 2_000)
    with unpacked(many, MOST_BYTES) as table:
        assert table.stated_bytes < MOST_BYTES
        [*_, last] = table.pieces
    assert last.size > MOST_BYTES and len(last.batch) == 0
    with unpacked(many, 100) as table:
        assert table.stated_bytes > 100
        assert not list(table.pieces)


@pytest.mark.parametrize("raw", [b"", b"PAR1", b"no Parquet" * 10_000, FILE[:-9], FILE[:4] + FILE[9:]])
def test_what_is_no_parquet_is_refused(raw: bytes) -> None:
    with pytest.raises(Refusal, match="cannot be read as Parquet") as found:
        rows(raw)
    assert found.value.reason is Reason.SYNTAX


SENDS = """
import io, os, signal, sys, pyarrow, pyarrow.ipc
schema = pyarrow.schema([("id", pyarrow.string())], {"rows": "9", "bytes": "9"})
out = io.BytesIO()
stream = pyarrow.ipc.new_stream(out, schema)
stream.write_batch(pyarrow.record_batch([pyarrow.array(["a"])], schema=schema), {"bytes": "9"})
"""


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import os; os.abort()", "the reader breaks down over it (SIGABRT)"),
        (
            f"{SENDS}sys.stdout.buffer.write(out.getvalue()); sys.stdout.flush(); os.kill(os.getpid(), 9)",
            "SIGKILL",
        ),
        (f"{SENDS}sys.stdout.buffer.write(out.getvalue()[:-9]); sys.stdout.flush(); os.abort()", "SIGABRT"),
    ],
    ids=["at once", "between two pieces", "in a piece"],
)
def test_the_end_of_the_reader_is_that_of_the_file(
    monkeypatch: pytest.MonkeyPatch, code: str, why: str
) -> None:
    assert why in refused(monkeypatch, code)


def test_a_piece_that_is_not_whole_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    bent = f"{SENDS}stream.close(); sys.stdout.buffer.write(out.getvalue().replace(b'a', b'\\xff'))"
    assert "Invalid UTF8" in refused(monkeypatch, bent)


READS = "from service import parquet_child as child; child.parquet.opened = "


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("lambda raw: bytearray(8 << 30)", "it takes more memory than what it may unpack to"),
        ("lambda raw: any(iter(int, 1)); child.CPU_S = 1", "it takes too much processor time"),
        ("lambda raw: child.signal.pause(); child.PIECE_S = 1", "it takes too long"),
        ("lambda raw: 1 / 0", "division by zero"),
    ],
    ids=["memory", "processor time", "time", "an error"],
)
def test_the_reader_has_limits(monkeypatch: pytest.MonkeyPatch, code: str, why: str) -> None:
    assert why in refused(monkeypatch, f"{READS}{code}; child.main()")


def test_limits_that_are_there_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import resource, sys; from service import parquet_child as child;"
        "resource.setrlimit(resource.RLIMIT_CPU, (50, 50)); child._limit(10, 10);"
        "print(*(resource.getrlimit(kind) for kind in (resource.RLIMIT_CPU, resource.RLIMIT_AS)),"
        " file=sys.stderr); sys.exit(3)"
    )
    assert f"(50, 50) ({(1 << 30) + 50}, " in refused(monkeypatch, code)


def test_the_reader_knows_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANGEWATCH_KAFKA_PASSWORD", "geheim")
    code = "import os, sys; print(sorted(os.environ), *os.environ.values(), file=sys.stderr); sys.exit(3)"
    told = refused(monkeypatch, code)
    assert "ARROW_DEFAULT_MEMORY_POOL" in told and "geheim" not in told


def test_the_reader_imports_arrow_and_little_else(monkeypatch: pytest.MonkeyPatch) -> None:
    heavy = "{'asyncio', 'fastapi', 'msgspec', 'numba', 'pandas', 'service.model'} & set(sys.modules)"
    code = f"import sys, service.parquet_child; print({heavy}, file=sys.stderr); sys.exit(3)"
    assert ": set();" in refused(monkeypatch, code)


def test_a_reader_that_cannot_begin_is_no_fault_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_process, "_CHILD", ("-m", "service.nowhere"))
    with pytest.raises(RuntimeError, match=r"ends with 1: .*No module named service\.nowhere"):
        rows(FILE)
