"""Copies of a log that is in use are logs as of one commit, or are not there."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from service.__main__ import main
from service.log.port import LogUnusable
from service.log.sqlite import SqliteLog
from service.log.sqlite_backup import back_up
from service.log.sqlite_file import SCHEMA_VERSION
from tests.api.conftest import OwnSource
from tests.api.harness import running
from tests.log.test_sqlite import WRITER, ZERO, filled, spawn


def _untold(done: int, total: int) -> None:
    assert 0 <= done <= total


def test_a_copy_beside_a_writer_is_as_of_one_commit(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with spawn(WRITER, path) as writer:
        assert writer.stdout is not None
        for number in range(4):
            for _ in range(5):
                seen = int(writer.stdout.readline())
            copy = tmp_path / f"copy{number}.db"
            told: list[int] = []

            def while_copying(done: int, total: int, told: list[int] = told) -> None:
                assert writer.stdout is not None
                told.append(done)
                writer.stdout.readline()  # the writer has committed in the middle of the copy

            back_up(path, copy, while_copying)
            assert told and writer.poll() is None
            log = SqliteLog(copy)
            log.open()
            position = log.position(ZERO)
            assert position is not None and position.event >= seen
            assert dict(log.restore(ZERO)) == {
                b"%d" % key: b"%d" % (position.event - 1) for key in range(100)
            }
            assert len(log.read("matches", after=0, limit=10**6)[0]) == 100 * position.event
            log.close()
        writer.kill()


def test_a_service_goes_on_from_a_copy(tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    with running(tmp_path) as service:
        source = OwnSource(service.plain)
        q = source.register("q")["id"]
        source.send({"stream_id": "a", "x": 1})
        back_up(tmp_path / "log.db", copies / "log.db", _untold)
        source.send({"stream_id": "a", "x": 0})  # is not in the copy
    with running(copies) as restored:
        view = restored.plain.get("/v1/streams/a", params={"source": source.name}).json()
        assert (view["inside"], view["seq"]) == ([q], 1)
        source.client = restored.plain
        (record,) = source.send({"stream_id": "a", "x": -1})["outputs"]
        assert (record["value"]["leave"], record["value"]["seq"]) == ([q], 2)


def test_the_command_says_what_it_made_or_why_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, copy = tmp_path / "log.db", tmp_path / "copy.db"
    filled(path)
    assert main(["backup", str(path), str(copy)]) == 0
    assert f"{copy.stat().st_size:,} bytes" in capsys.readouterr().out
    before = copy.read_bytes()
    assert main(["backup", str(path), str(copy)]) == 1
    assert "is there already" in capsys.readouterr().err
    assert copy.read_bytes() == before


@pytest.mark.parametrize("what", ["missing", "foreign", "newer", "torn", "no folder"])
def test_no_copy_of_what_is_no_good(tmp_path: Path, what: str) -> None:
    path, copy = tmp_path / "log.db", tmp_path / "copy.db"
    filled(path)
    if what == "missing":
        path = tmp_path / "nothing.db"
    elif what == "foreign":
        path.unlink()
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE theirs (a)")
    elif what == "newer":
        with sqlite3.connect(path) as other:
            other.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    elif what == "torn":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        copy = tmp_path / "nowhere" / "copy.db"
    with pytest.raises(LogUnusable):
        back_up(path, copy, _untold)
    assert not copy.exists()
    assert not list(tmp_path.glob("*.unfinished"))
