"""API keys as a file: what is kept, what is let in, and what an edit leaves alone."""

from __future__ import annotations

import errno
import hashlib
import hmac
import logging
import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.keys import (
    Key,
    KeyRefused,
    KeyRing,
    KeysError,
    Role,
    edit,
    new_key,
    read_keys,
    with_key,
    without_key,
)
from service.watch import AGAIN_S

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


def made(name: str = "ana", role: Role = Role.READ, expires: datetime | None = None) -> tuple[str, Key]:
    return new_key(name, role, now=NOW, expires=expires)


def written(path: Path, *keys: Key) -> Path:
    path.write_text("")
    for key in keys:
        path.write_text(with_key(path.read_text(), key))
    return path


def test_a_key_has_256_random_bits_and_the_file_only_their_hash() -> None:
    text, key = made()
    secret = text.rpartition("_")[2]
    assert len(bytes.fromhex(secret)) == 32
    document = with_key("", key)
    assert secret not in document
    assert secret not in repr(key)
    assert key.hash not in repr(key)
    assert len({made()[0] for _ in range(100)}) == 100


def test_roles_are_ordered() -> None:
    assert [[have.covers(need) for need in Role] for have in Role] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_several_keys_of_a_name_are_valid_together_until_each_expires(tmp_path: Path) -> None:
    old, old_key = made(expires=NOW + timedelta(days=1))
    new, new_key = made(role=Role.ADMIN)
    ring = KeyRing(written(tmp_path / "keys.toml", old_key, new_key))
    assert ring.principal(old, NOW)[:2] == ("ana", Role.READ)
    assert ring.principal(new, NOW)[:2] == ("ana", Role.ADMIN)
    last = NOW + timedelta(days=1) - timedelta(microseconds=1)
    assert ring.principal(old, last).key == old_key.id
    with pytest.raises(KeyRefused, match="has expired"):
        ring.principal(old, NOW + timedelta(days=1))
    assert ring.principal(new, NOW + timedelta(days=10_000)).key == new_key.id


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: "",
        lambda text: text[:-1],
        lambda text: text + "0",
        lambda text: text[:-1] + ("0" if text[-1] != "0" else "1"),
        lambda text: text.upper(),
        lambda text: text.replace("rw_", "rw-"),
        lambda text: f"rw_{'0' * 12}_{text.rpartition('_')[2]}",
        lambda text: text + "\n",
        lambda text: "é" * 80,
        lambda text: "x" * 1_000_000,
    ],
)
def test_what_is_nearly_a_key_is_none(tmp_path: Path, spoil: Callable[[str], str]) -> None:
    text, key = made()
    ring = KeyRing(written(tmp_path / "keys.toml", key))
    with pytest.raises(KeyRefused, match="not known") as refused:
        ring.principal(spoil(text), NOW)
    assert text.rpartition("_")[2] not in str(refused.value)


def test_the_secret_of_one_key_does_not_go_with_the_id_of_another(tmp_path: Path) -> None:
    (one, one_key), (other, other_key) = made("one"), made("other", Role.ADMIN)
    ring = KeyRing(written(tmp_path / "keys.toml", one_key, other_key))
    with pytest.raises(KeyRefused):
        ring.principal(f"rw_{other_key.id}_{one.rpartition('_')[2]}", NOW)
    assert ring.principal(other, NOW).name == "other"


@pytest.mark.parametrize("is_known", [True, False])
def test_digests_are_compared_in_constant_time_whether_there_is_such_a_key_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    text, key = made()
    ring = KeyRing(written(tmp_path / "keys.toml", key))
    compared: list[tuple[bytes, bytes]] = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return False

    monkeypatch.setattr(hmac, "compare_digest", compare)
    shown = text if is_known else made()[0]
    with pytest.raises(KeyRefused):  # what it says is what counts
        ring.principal(shown, NOW)
    (pair,) = compared
    assert hashlib.sha256(shown.encode()).digest() in pair
    assert (key.digest in pair) is is_known


def test_a_change_of_the_file_holds_at_the_next_request(tmp_path: Path) -> None:
    (old, old_key), (new, new_key) = made(), made()
    path = written(tmp_path / "keys.toml", old_key)
    ring = KeyRing(path)
    with pytest.raises(KeyRefused):
        ring.principal(new, NOW)
    edit(path, lambda document: with_key(document, new_key))
    assert ring.principal(new, NOW).key == new_key.id
    edit(path, lambda document: without_key(document, old_key.id))
    with pytest.raises(KeyRefused):
        ring.principal(old, NOW)
    assert ring.principal(new, NOW).key == new_key.id


def test_a_file_that_breaks_leaves_the_keys_as_they_were_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text, key = made()
    path = written(tmp_path / "keys.toml", key)
    ring = KeyRing(path)
    for break_it in (lambda: path.write_text("[[keys]"), path.unlink):
        caplog.clear()
        break_it()
        for _ in range(3):
            assert ring.principal(text, NOW).key == key.id
        assert [record.levelno for record in caplog.records] == [logging.ERROR]
        assert str(path) in caplog.text
    written(path, made()[1])
    with pytest.raises(KeyRefused):
        ring.principal(text, NOW)


@pytest.mark.parametrize("empty", ["", " \n\t\n", "# no key yet\n"])
def test_a_file_that_is_written_in_place_locks_nobody_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, empty: str
) -> None:
    (text, key), (other, other_key) = made(), made()
    path = written(tmp_path / "keys.toml", key)
    ring = KeyRing(path)
    whole = with_key(with_key("", key), other_key)
    for part in (empty, whole[:-9]):
        caplog.clear()
        path.write_text(part)
        for _ in range(3):
            assert ring.principal(text, NOW).key == key.id
        assert [record.levelno for record in caplog.records] == [logging.ERROR]
        assert ("keys = []" in caplog.text) is (part == empty)
    path.write_text(whole)
    assert ring.principal(other, NOW).key == other_key.id


def test_the_last_key_is_revoked_as_any_other(tmp_path: Path) -> None:
    text, key = made()
    path = written(tmp_path / "keys.toml", key)
    ring = KeyRing(path)
    edit(path, lambda document: without_key("# ours\n" + document, key.id))
    assert path.read_text() == "# ours\n\nkeys = []\n"
    with pytest.raises(KeyRefused):
        ring.principal(text, NOW)
    edit(path, lambda document: with_key(document, key))
    assert ring.principal(text, NOW).key == key.id
    assert path.read_text().startswith("# ours\n\n[[keys]]")


def test_a_file_without_keys_is_one_at_the_start(tmp_path: Path) -> None:
    text, key = made()
    ring = KeyRing(written(tmp_path / "keys.toml"))
    with pytest.raises(KeyRefused):
        ring.principal(text, NOW)
    written(tmp_path / "keys.toml", key)
    assert ring.principal(text, NOW).key == key.id


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_file_that_may_not_be_read_is_read_when_it_may_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (leaked, leaked_key), (new, new_key) = made(), made()
    path = written(tmp_path / "keys.toml", leaked_key)
    ring = KeyRing(path, Clock())
    written(path, new_key)
    path.chmod(0o666)
    for _ in range(3):
        assert ring.principal(leaked, NOW).key == leaked_key.id
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    path.chmod(0o600)  # as the log says
    assert ring.principal(new, NOW).key == new_key.id
    with pytest.raises(KeyRefused):
        ring.principal(leaked, NOW)


def test_a_reading_that_fails_is_tried_again_though_the_file_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (leaked, leaked_key), (new, new_key) = made(), made()
    path = written(tmp_path / "keys.toml", leaked_key)
    clock, readings = Clock(), 0
    ring = KeyRing(path, clock)
    written(path, new_key)

    def no_descriptor(_: Path) -> str:
        nonlocal readings
        readings += 1
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", no_descriptor)
        for _ in range(100):
            assert ring.principal(leaked, NOW).key == leaked_key.id
            clock.now += AGAIN_S / 10
        assert 5 <= readings <= 11, "some times a second, not at every request"
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    clock.now += AGAIN_S
    assert ring.principal(new, NOW).key == new_key.id
    with pytest.raises(KeyRefused):
        ring.principal(leaked, NOW)


def test_a_key_that_is_revoked_while_the_file_is_read_is_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (leaked, leaked_key), (new, new_key) = made(), made()
    path = written(tmp_path / "keys.toml", leaked_key)
    ring = KeyRing(path, Clock())
    edit(path, lambda document: with_key(document, new_key))
    read = Path.read_text

    def revoking(file: Path) -> str:
        before = read(file)
        monkeypatch.setattr(Path, "read_text", read)
        edit(path, lambda document: without_key(document, leaked_key.id))
        return before

    monkeypatch.setattr(Path, "read_text", revoking)
    assert ring.principal(leaked, NOW).key == leaked_key.id, "as the file was when it was read"
    with pytest.raises(KeyRefused):
        ring.principal(leaked, NOW)
    assert ring.principal(new, NOW).key == new_key.id


def test_a_file_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "keys.toml", made()[1])
    path.chmod(0o666)
    with pytest.raises(KeysError, match="chmod o-w"):
        KeyRing(path)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("role = ", "rule = "), "key 1: role"),
        (('role = "read"', 'role = "root"'), "key 1: role"),
        (('name = "ana"', 'name = "ana\\r\\nX: y"'), "key 1: name"),
        (('name = "ana"', 'name = ""'), "key 1: name"),
        (('tenant = "default"', 'tenant = "a/b"'), "key 1: tenant"),
        (("sha256:", "md5:"), "key 1: hash"),
        (("created = 2026-11-28T12:00:00Z", "created = 2026-11-28T12:00:00"), "key 1: created"),
        (("[[keys]]", "[keys]"), "keys is no list"),
        (("[[keys]]", "[[kees]]"), "unknown 'kees'"),
        (("[[keys]]", "[[keys]"), "not TOML"),
        (("[[keys]]", f"keys = {'[' * 10_000}"), "not TOML"),
        (("2026-11-28T12:00:00Z", "1" * 10_000), "not TOML"),
    ],
)
def test_a_mistake_in_the_file_is_named_without_the_hash(change: tuple[str, str], named: str) -> None:
    _, key = made()
    document = with_key("", key)
    assert change[0] in document
    with pytest.raises(KeysError, match=named) as refused:
        read_keys(document.replace(*change))
    assert key.hash.removeprefix("sha256:") not in str(refused.value)


def test_an_id_that_stands_twice_is_refused() -> None:
    _, key = made()
    with pytest.raises(KeysError, match="stands twice"):
        read_keys(with_key(with_key("", key), key))


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["# a note\n", "\n", "# [[keys]] in a note\n"]), max_size=3), st.integers(0, 2)
)
def test_revoking_leaves_everything_else_as_it_is(notes: list[str], gone: int) -> None:
    keys = [made(f"k{number}")[1] for number in range(3)]
    document = "".join(notes)
    for key in keys:
        document = with_key(document, key)
    kept = without_key(document, keys[gone].id)
    assert list(read_keys(kept).values()) == [key for number, key in enumerate(keys) if number != gone]
    assert kept.startswith("".join(notes).rstrip())
    with pytest.raises(KeysError, match="there is no key"):
        without_key(kept, keys[gone].id)


def test_a_layout_that_cannot_be_edited_safely_is_not_edited() -> None:
    _, key = made()
    fields = ", ".join(with_key("", key).splitlines()[1:])
    document = f"keys = [{{{fields}}}]"
    assert read_keys(document) == {key.id: key}
    with pytest.raises(KeysError, match="by hand"):
        without_key(document, key.id)


def test_an_edit_keeps_the_mode_and_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    edit(path, lambda document: with_key(document, made()[1]))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    edit(link, lambda document: with_key(document, made()[1]))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert link.is_symlink()
    assert len(read_keys(path.read_text())) == 2
    assert sorted(one.name for one in tmp_path.iterdir()) == ["keys.toml", "link.toml"]


def test_an_edit_keeps_the_owner_and_where_it_may_not_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service reads the file as a user of its own: what root revokes must end there."""
    _, key = made()
    path = written(tmp_path / "keys.toml", key)
    given: list[tuple[int, int, str]] = []
    monkeypatch.setattr(os, "chown", lambda to, *owner: given.append((*owner, Path(to).read_text())))
    owner = path.stat()
    edit(path, lambda document: without_key(document, key.id))
    assert given == [(owner.st_uid, owner.st_gid, path.read_text())] and not read_keys(path.read_text())

    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refused)
    with pytest.raises(KeysError, match=f"user {owner.st_uid} .* as root; nothing has changed"):
        edit(path, lambda document: with_key(document, key))
    assert not read_keys(path.read_text()) and list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_key_that_root_revokes_is_revoked_for_the_service(tmp_path: Path) -> None:
    _, key = made()
    path = written(tmp_path / "keys.toml", key)
    path.chmod(0o600)
    os.chown(path, 65_534, 65_533)
    edit(path, lambda document: without_key(document, key.id))
    found = path.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (65_534, 65_533, 0o600)


def test_edits_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    keys = [made(f"k{number}")[1] for number in range(16)]
    threads = [
        Thread(target=edit, args=(path, lambda document, key=key: with_key(document, key))) for key in keys
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_keys(path.read_text()) == {key.id: key for key in keys}
