"""Files of events to JSON, without a service."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from service import parquet
from service.cli.errors import CliError
from service.cli.files import BadRow, Row, Shape, opened
from service.cli.inference import infer_attributes
from service.cli.replay import BATCH_BYTES, BATCH_EVENTS, packed

SHAPE = Shape({"x": "number", "y": "number", "kind": "category"})


def rows(path: Path, shape: Shape = SHAPE) -> list[Row | BadRow]:
    with opened(path, shape) as (found, progress):
        read = list(found)
        assert progress.done() == progress.total
        return read


def texts(path: Path, shape: Shape = SHAPE) -> list[str]:
    return [row.text.decode() if isinstance(row, Row) else f"bad {row.number}" for row in rows(path, shape)]


def csv(folder: Path, text: str) -> Path:
    file = folder / "events.csv"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("cell", "literal"),
    [
        ("5", "5"),
        ("-0", "-0"),
        ("39.02", "39.02"),
        ("1.0", "1.0"),
        ("1e5", "1e5"),
        ("9007199254740993", "9007199254740993"),
        ("0.1000000000000000055", "0.1000000000000000055"),
        (" 5 ", "5"),
        ("+5", "5"),
        ("007", "7"),
        (".5", "0.5"),
        ("5.", "5.0"),
        ("1e999", "1e999"),
        ("nan", '"nan"'),
        ("1_000", '"1_000"'),
        ("0x10", '"0x10"'),
        ("n/a", '"n/a"'),
        ("true", '"true"'),
    ],
)
def test_a_number_keeps_its_digits_and_nothing_else_becomes_one(
    tmp_path: Path, cell: str, literal: str
) -> None:
    file = csv(tmp_path, f"stream_id,x\na,{cell}\n")
    assert texts(file) == [f'{{"stream_id":"a","x":{literal}}}']


def test_an_empty_cell_is_no_attribute_and_a_strange_column_is_left_out(tmp_path: Path) -> None:
    file = csv(tmp_path, 'stream_id,note,ts,x,kind\n7,hello,5,,007\na,"x,y",,1,\n')
    assert texts(file) == ['{"stream_id":"7","ts":5,"kind":"007"}', '{"stream_id":"a","x":1}']


@pytest.mark.parametrize(
    ("cell", "ts"),
    [
        ("1357020000000", 1357020000000),
        ("2013-01-01T06:00:00Z", 1357020000000),
        ("2013-01-01 06:00", 1357020000000),
        ("2013-01-01T07:00:00.001+01:00", 1357020000001),
        ("2013-01-01", 1356998400000),
        ("yesterday", None),
        ("5.5", None),
    ],
)
def test_times_are_milliseconds_or_iso_8601(tmp_path: Path, cell: str, ts: int | None) -> None:
    (row,) = rows(csv(tmp_path, f"stream_id,ts,x\na,{cell},1\n"))
    assert isinstance(row, Row)
    assert row.ts == ts
    assert json.loads(row.text)["ts"] == (cell if cell == "yesterday" else 5.5 if ts is None else ts)


def test_columns_go_where_the_source_looks(tmp_path: Path) -> None:
    shape = Shape({"x": "number"}, key="vehicle.id", ts="at", paths={"x": "position.x"})
    expected = ['{"vehicle":{"id":"v"},"at":5,"position":{"x":1}}', '{"vehicle":{"id":"w"},"at":6}']
    for header in ("stream_id,ts,x", "vehicle.id,at,position.x"):
        assert texts(csv(tmp_path, f"{header}\nv,5,1\nw,6,\n"), shape) == expected


def test_the_column_of_ids_goes_where_the_source_looks(tmp_path: Path) -> None:
    file = csv(tmp_path, "stream_id,x,meta.id\nv,1,7\nw,2,\n")
    with_ids = Shape(SHAPE.attributes, event_id="meta.id")
    assert texts(file, with_ids) == [
        '{"stream_id":"v","x":1,"meta":{"id":"7"}}',
        '{"stream_id":"w","x":2}',
    ]
    assert texts(file) == ['{"stream_id":"v","x":1}', '{"stream_id":"w","x":2}'], "nobody asks for them"


def test_rows_of_another_length_are_named_and_blank_ones_skipped(tmp_path: Path) -> None:
    file = csv(tmp_path, "stream_id,x\na,1\n\nb\nc,1,2\nd,4\n")
    assert texts(file) == ['{"stream_id":"a","x":1}', "bad 4", "bad 5", '{"stream_id":"d","x":4}']


def test_lines_of_ndjson_go_as_they_are(tmp_path: Path) -> None:
    lines = ['{"stream_id": "a",  "x": 1.0}', "", "{broken", '[{"stream_id":"b","ts":7}]', '{"ts": 9}']
    file = tmp_path / "events.jsonl.gz"
    file.write_bytes(gzip.compress("\n".join(lines).encode()))
    assert texts(file) == [lines[0], "bad 3", lines[3], lines[4]]
    assert [row.ts for row in rows(file) if isinstance(row, Row)] == [None, None, 9]


def test_parquet_rows_are_events(tmp_path: Path) -> None:
    file = tmp_path / "events.parquet"
    columns: dict[str, Any] = {
        "stream_id": ["a", "b"],
        "ts": [datetime(2013, 1, 1, 6, tzinfo=UTC), None],
        "x": [1.5, None],
        "y": [3, 4],
        "kind": ["007", None],
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), file)
    assert texts(file) == [
        '{"stream_id":"a","ts":1357020000000,"x":1.5,"y":3,"kind":"007"}',
        '{"stream_id":"b","y":4}',
    ]
    assert infer_attributes(file) == {"x": "number", "y": "number", "kind": "category"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("events.xlsx", b""),
        ("events", b""),
        ("events.csv", b""),
        ("events.csv", b"x,y\n1,2\n"),
        ("events.csv", b"stream_id,z\na,2\n"),
        ("events.csv", b'stream_id,x\na,"unclosed\n'),
        ("events.csv", b"stream_id,x\na,\xff\n"),
        ("events.csv.gz", b"not gzip"),
        ("events.csv.gz", gzip.compress(b"stream_id,x\na,1\n", mtime=0)[:-9]),
        ("events.parquet", b"not parquet"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_clear_error(tmp_path: Path, name: str, content: bytes) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(CliError, match=r"events|column"):
        rows(file)


def test_types_are_inferred_from_what_is_there(tmp_path: Path) -> None:
    file = csv(tmp_path, "stream_id,ts,x,kind,mixed,empty\na,1,5,tug,5,\nb,2,,cargo,five,\n")
    assert infer_attributes(file) == {"x": "number", "kind": "category", "mixed": "category"}
    lines = tmp_path / "events.ndjson"
    lines.write_text(
        '{"stream_id": "a", "x": 1, "code": "5", "deep": {"y": 1}}\n[{"x": null, "flag": true}]\nbad\n'
    )
    assert infer_attributes(lines) == {"x": "number", "code": "category", "flag": "category"}


def test_requests_hold_whole_events_in_order_within_their_limits() -> None:
    small = [Row(b'{"n":%d}' % n, None) for n in range(BATCH_EVENTS + 1)]
    assert [count for _, count in packed(small)] == [BATCH_EVENTS, 1]
    large = [Row(b'{"n":"' + b"x" * (BATCH_BYTES // 2) + b'"}', None)] * 3
    assert [count for _, count in packed(large)] == [1, 1, 1]
    mixed: list[Row | None] = [
        Row(b"{}", None),
        None,
        Row(b"{}", None),
        Row(b"[{},{}]", None),
        Row(b"{}", None),
    ]
    assert list(packed(mixed)) == [(b"[{}]", 1), (b"[{}]", 1), (b"[{},{}]", 2), (b"[{}]", 1)]


def test_a_line_that_a_small_file_unpacks_to_is_not_read_to_its_end(tmp_path: Path) -> None:
    for name in ("events.ndjson.gz", "events.csv.gz"):
        file = tmp_path / name
        with gzip.open(file, "wb", compresslevel=1) as out:
            out.write(b"stream_id,x\n" if "csv" in name else b'{"stream_id": "a", "x": 1}\n')
            for _ in range(65):
                out.write(b" " * (1 << 20))
        assert file.stat().st_size < 1 << 20
        with pytest.raises(CliError, match="line 2 is longer than 67108864 bytes"):
            rows(file)
        with pytest.raises(CliError, match="line 2"):
            infer_attributes(file)


def test_parquet_is_read_a_little_at_a_time_whatever_it_unpacks_to(tmp_path: Path) -> None:
    file = tmp_path / "events.parquet"
    count = 4_000
    columns = {"stream_id": [f"s{i}" for i in range(count)], "kind": pyarrow.repeat("k" * 20_000, count)}
    pyarrow.parquet.write_table(pyarrow.table(columns), file)
    assert file.stat().st_size < 1 << 20
    pieces = list(parquet.pieces(parquet.opened(file), 1 << 20))
    assert len(pieces) > 80 and max(piece.size for piece in pieces) <= 1 << 20
    assert [id for piece in pieces for id in piece.columns()[0]] == columns["stream_id"]
    assert len(rows(file)) == count
    pyarrow.parquet.write_table(
        pyarrow.table({"stream_id": ["a", "b"], "kind": ["k", "k" * (65 << 20)]}), file
    )
    with pytest.raises(CliError, match="row 2 unpacks to"):
        rows(file)
    with pytest.raises(CliError, match="row 2 unpacks to"):
        infer_attributes(file)


def test_what_a_table_comes_to_is_what_its_cells_are(tmp_path: Path) -> None:
    file = tmp_path / "table.parquet"
    columns = {
        "number": [1, None, 3],
        "text": ["abc", "abc", None],
        "list": [["ab", "ab"], [], None],
        "struct": [{"a": "x", "b": 1.0}] * 3,
        "map": pyarrow.array([[("k", 1)], [], None], pyarrow.map_(pyarrow.string(), pyarrow.int8())),
        "wide": pyarrow.array([b"y" * 20] * 3, pyarrow.binary(20)),
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), file)
    cells = 3 * 8 + (3 * 8 + 6) + (3 * 8 + 2 * 8 + 4) + (3 * 8 + 2 * 3 * 8 + 3) + (3 * 8 + 2 * 8 + 1) + 3 * 20
    for most in (1, 100, 10_000):
        pieces = list(parquet.pieces(parquet.opened(file), most))
        assert sum(piece.size for piece in pieces) == cells
        assert len(pieces) == 1 if most > cells else len(pieces) == 3
