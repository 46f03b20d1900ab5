"""Copies of a log that is in use are logs as of one commit, or are not there."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from service.__main__ import main
from service.log.port import LogUnusable, Message
from service.log.sqlite import SqliteLog
from service.log.sqlite_backup import back_up, put_back
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


@pytest.mark.parametrize(
    ("place", "why"), [("nowhere/copy.db", "No such file"), ("log.db/copy.db", "Not a directory")]
)
def test_a_place_where_no_copy_can_be_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str, why: str
) -> None:
    path, copy = tmp_path / "log.db", tmp_path / place
    filled(path)
    assert main(["backup", str(path), str(copy)]) == 1
    told = capsys.readouterr().err
    assert f"{copy} cannot be written: {why}" in told and f"{path} " not in told


def test_a_copy_for_which_there_is_no_room_is_named_and_taken_away(tmp_path: Path) -> None:
    path, copy = tmp_path / "log.db", tmp_path / "copy.db"
    filled(path)

    def fill_up(done: int, total: int) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    with pytest.raises(LogUnusable, match=r"copy\.db cannot be written: No space left"):
        back_up(path, copy, fill_up)
    assert not list(tmp_path.glob("copy*"))


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


# ---- putting a copy back


def _copied(path: Path) -> Path:
    copy = path.with_name("copy.db")
    back_up(path, copy, _untold)
    return copy


def _killed_with_a_journal(path: Path) -> Path:
    """A copy of a log whose writer then went on and was killed: its newest commits are in ``-wal`` alone."""
    with spawn(WRITER, path) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        copy = _copied(path)
        for _ in range(20):
            writer.stdout.readline()
        writer.kill()
    assert Path(f"{path}-wal").stat().st_size
    return copy


def _turns(path: Path) -> int:
    """How far the writer of a log had come; all that is there belongs together."""
    log = SqliteLog(path)
    log.open()
    position = log.position(ZERO)
    assert position is not None
    records, _ = log.read("matches", after=0, limit=10**6)
    assert len(records) == 100 * position.event
    assert dict(log.restore(ZERO)) == {b"%d" % key: b"%d" % (position.event - 1) for key in range(100)}
    log.close()
    return position.event


def test_a_copy_is_put_back_over_a_file_whose_owner_was_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.db"
    copy = _killed_with_a_journal(path)
    path.chmod(0o640)
    assert main(["restore", str(copy), str(path)]) == 0
    old = tmp_path / "log.db.replaced-1"
    assert str(old) in capsys.readouterr().out
    assert path.stat().st_mode & 0o777 == 0o640
    assert not Path(f"{path}-wal").exists() and not Path(f"{path}-shm").exists()
    assert _turns(path) == _turns(copy) >= 1
    assert _turns(old) >= max(21, _turns(path)), "the old file is a whole log, with its journal"
    assert main(["restore", str(copy), str(path), "--discard"]) == 0
    assert not (tmp_path / "log.db.replaced-2").exists()
    assert main(["restore", str(copy), str(path)]) == 0
    assert _turns(tmp_path / "log.db.replaced-2") == _turns(path)


def test_a_copy_is_put_where_there_is_no_file(tmp_path: Path) -> None:
    path, target = tmp_path / "log.db", tmp_path / "elsewhere" / "log.db"
    filled(path)
    copy = _copied(path)
    target.parent.mkdir()
    copy.parent.chmod(0o555)  # as on a disk that cannot be written
    before = copy.read_bytes()
    try:
        assert put_back(copy, target, _untold, keep=True) is None
    finally:
        copy.parent.chmod(0o755)
    assert copy.read_bytes() == before and not Path(f"{copy}-wal").exists()
    assert sorted(one.name for one in target.parent.iterdir()) == ["log.db", "log.db.lock"]
    log = SqliteLog(target)
    log.open()
    assert log.read("events.a", after=0, limit=10)[0]
    log.close()


def test_a_file_that_is_open_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.db"
    filled(path)
    copy = _copied(path)
    log = SqliteLog(path)
    log.open()
    assert main(["restore", str(copy), str(path)]) == 1
    assert "in use by process" in capsys.readouterr().err
    log.append_events("events.a", [Message(b"key", b"value")])
    log.close()
    assert main(["restore", str(path), str(path)]) == 1
    assert "the file itself" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["missing", "foreign", "newer", "torn", "empty", "text", "bad page"])
def test_what_is_no_good_copy_is_not_put_back(tmp_path: Path, what: str) -> None:
    path = tmp_path / "log.db"
    copy = _killed_with_a_journal(path)
    if what == "missing":
        copy.unlink()
    elif what == "foreign":
        copy.unlink()
        with sqlite3.connect(copy) as other:
            other.execute("CREATE TABLE theirs (a)")
    elif what == "newer":
        with contextlib.closing(sqlite3.connect(copy)) as other:
            other.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    elif what == "torn":
        copy.write_bytes(copy.read_bytes()[: copy.stat().st_size // 2])
    elif what == "empty":
        copy.write_bytes(b"")
    elif what == "text":
        copy.write_bytes(b"no database" * 1_000)
    else:
        whole = bytearray(copy.read_bytes())
        whole[-4096:-3996] = b"\x07" * 100
        copy.write_bytes(whole)
    before = {one.name: one.read_bytes() for one in tmp_path.iterdir() if "lock" not in one.name}
    with pytest.raises(LogUnusable, match=re.escape(str(copy))):
        put_back(copy, path, _untold, keep=False)
    after = {one.name: one.read_bytes() for one in tmp_path.iterdir() if "lock" not in one.name}
    assert after == before


class _PowerCut(Exception):
    pass


@pytest.mark.parametrize("keep", [True, False])
def test_a_restore_that_ends_anywhere_is_told_at_the_start_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    refused = 0
    for step in count():
        folder = tmp_path / str(step)
        folder.mkdir()
        path = folder / "log.db"
        copy = _killed_with_a_journal(path)
        left = step

        def cut(effect: Any) -> Any:
            def perhaps(*args: Any, **kwargs: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    raise _PowerCut
                return effect(*args, **kwargs)

            return perhaps

        with monkeypatch.context() as patched:
            for name in ("rename", "replace", "unlink", "touch"):
                patched.setattr(Path, name, cut(getattr(Path, name)))
            try:
                put_back(copy, path, _untold, keep=keep)
                is_done = True
            except _PowerCut:
                is_done = False
        if is_done:
            break
        log = SqliteLog(path)
        if path.with_name("log.db.restoring").exists():
            refused += 1
            with pytest.raises(LogUnusable, match="repeat it"):
                log.open()
        else:
            reached = _turns(path)
            assert reached > 20 or reached == _turns(copy), "the old one or the new one, whole"
        put_back(copy, path, _untold, keep=keep)
        assert _turns(path) == _turns(copy)
        if keep:
            assert max(map(_turns, folder.glob("log.db.replaced-?"))) >= 20, "the old one is whole"
    assert refused >= 3
