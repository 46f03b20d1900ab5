"""``rangewatch keys``, the commands with a key, and where a service without keys may be."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from service.__main__ import main
from service.cli.client import connected, send
from service.keys import Role, edit, new_key, read_keys, with_key
from tests.api.harness import eventually, running
from tests.cli.conftest import Served, rangewatch, serving

KEY = re.compile(r"rw_[0-9a-f]{12}_[0-9a-f]{64}")


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """A command in this process, which is a second faster than in one of its own."""

    def run(*args: object, **variables: str) -> Done:
        with monkeypatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("RANGEWATCH_")]:
                patch.delenv(name)
            for name, value in {"COLUMNS": "200", **variables}.items():
                patch.setenv(name, value)
            try:
                code = main([str(arg) for arg in args])
            except SystemExit as wrong_usage:
                code = int(wrong_usage.code or 0)
        return Done(code, *capsys.readouterr())

    return run


def add_key(file: Path, name: str, role: Role) -> str:
    text, key = new_key(name, role, now=datetime.now(UTC))
    edit(file, lambda document: with_key(document, key))
    return text


def test_a_key_is_printed_once_and_listed_without_itself(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    done = run("keys", "new", "ana", "--role", "write", "--expires", "90d", RANGEWATCH_KEYS_FILE=str(file))
    key = done.stdout.removesuffix("\n")
    assert KEY.fullmatch(key)
    assert key not in done.stderr + file.read_text()
    (kept,) = read_keys(file.read_text()).values()
    assert kept.expires is not None
    assert 89 <= (kept.expires - kept.created).days <= 90
    assert run("keys", "new", "dashboard", "--role", "read", "--keys-file", file).returncode == 0
    listed = run("keys", "list", "--keys-file", file)
    assert [line.split()[1:4] for line in listed.stdout.splitlines()[1:]] == [
        ["ana", "write", "default"],
        ["dashboard", "read", "default"],
    ]
    assert key not in listed.stdout
    assert kept.hash not in listed.stdout
    revoked = run("keys", "revoke", kept.id, "--keys-file", file)
    assert revoked.returncode == 0
    (last,) = read_keys(file.read_text()).values()
    assert last.name == "dashboard"
    revoked = run("keys", "revoke", last.id, "--keys-file", file)
    assert revoked.returncode == 0
    assert file.read_text() == "keys = []\n"
    assert run("keys", "new", "again", "--role", "read", "--keys-file", file).returncode == 0
    assert [one.name for one in read_keys(file.read_text()).values()] == ["again"]


@pytest.mark.parametrize(
    ("args", "code", "named"),
    [
        (("new", "a b", "--role", "read"), 2, "name"),
        (("new", "ana", "--role", "root"), 2, "role"),
        (("new", "ana"), 2, "role"),
        (("new", "ana", "--role", "read", "--expires", "soon"), 2, "expires"),
        (("revoke", "0123456789ab"), 1, "there is no key 0123456789ab"),
        (("list",), 1, "cannot read"),
    ],
)
def test_mistakes_are_named_and_change_nothing(
    run: Run, tmp_path: Path, args: tuple[str, ...], code: int, named: str
) -> None:
    done = run("keys", *args, RANGEWATCH_KEYS_FILE=str(tmp_path / "keys.toml"))
    assert (done.returncode, done.stdout) == (code, "")
    assert named in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_named_is_asked_for(run: Run) -> None:
    done = run("keys", "list")
    assert done.returncode == 2
    assert "RANGEWATCH_KEYS_FILE" in done.stderr


class Guarded(NamedTuple):
    served: Served
    folder: Path
    admin: str
    reader: str


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    file = folder / "keys.toml"
    admin, reader = add_key(file, "ana", Role.ADMIN), add_key(file, "rita", Role.READ)
    with serving(folder, "--keys-file", file, "--host", "0.0.0.0") as served:
        served.url = served.url.replace("0.0.0.0", "127.0.0.1")
        with httpx.Client(base_url=served.url, headers={"Authorization": f"Bearer {admin}"}) as client:
            client.put("/v1/sources/s", json={"attributes": {"x": "number"}}).raise_for_status()
        yield Guarded(served, folder, admin, reader)


def test_every_command_takes_its_key_from_the_environment(run: Run, guarded: Guarded, tmp_path: Path) -> None:
    queries, events = tmp_path / "queries.ndjson", tmp_path / "events.ndjson"
    queries.write_text('{"id": "q", "source": "s", "where": "x > 0"}\n')
    events.write_text('{"stream_id": "v", "x": 1}\n')
    commands = (
        ("queries", "import", queries),
        ("replay", events, "--source", "s"),
        ("tail", "borders", "--once", "--after", "0"),
        ("queries", "export", tmp_path / "exported.ndjson"),
        ("history", "q"),
        ("collections", "list"),
    )
    in_file = tmp_path / "key"
    in_file.write_text(guarded.admin + "\n")
    url = guarded.served.url
    for command in commands:
        refused = run(*command, "--url", url)
        assert refused.returncode == 1, command
        assert "unauthenticated" in refused.stderr
    for command in commands:
        for given in ({"RANGEWATCH_API_KEY": guarded.admin}, {"RANGEWATCH_API_KEY_FILE": str(in_file)}):
            done = run(*command, "--url", url, **given)
            assert done.returncode == 0, done.stderr
            assert guarded.admin not in done.stdout + done.stderr
    assert "by ana" in run("history", "q", "--url", url, RANGEWATCH_API_KEY=guarded.admin).stdout


def test_a_key_of_a_tenant_is_for_its_own(run: Run, guarded: Guarded, tmp_path: Path) -> None:
    url, keys = guarded.served.url, guarded.folder / "keys.toml"
    queries, events = tmp_path / "queries.ndjson", tmp_path / "events.ndjson"
    queries.write_text('{"id": "same", "source": "s", "where": "x > 10"}\n')
    events.write_text('{"stream_id": "of-two", "x": 11}\n')
    made = run("keys", "new", "tim", "--role", "write", "--tenant", "acme", "--keys-file", keys)
    both = {"acme": made.stdout.strip(), "default": guarded.admin}
    for key in both.values():
        assert run("queries", "import", queries, "--url", url, RANGEWATCH_API_KEY=key).returncode == 0
    assert (
        run("replay", events, "--source", "s", "--url", url, RANGEWATCH_API_KEY=both["acme"]).returncode == 0
    )
    for tenant, key in both.items():
        given = {"RANGEWATCH_URL": url, "RANGEWATCH_API_KEY": key}

        def told(given: dict[str, str] = given) -> list[dict[str, Any]]:
            lines = run("tail", "borders", "--once", "--after", "0", "--json", **given).stdout.splitlines()
            records = [json.loads(line)["value"] for line in lines]
            return [record for record in records if "same" in record["enter"]]

        (record,) = eventually(told, f"{tenant} is told")
        assert (record["tenant"], record["stream_id"]) == (tenant, "of-two")
        assert f"by {'tim' if tenant == 'acme' else 'ana'}" in run("history", "same", **given).stdout
    exported = run(
        "queries", "export", tmp_path / "out.ndjson", "--url", url, RANGEWATCH_API_KEY=both["acme"]
    )
    assert exported.returncode == 0
    assert [json.loads(line)["id"] for line in (tmp_path / "out.ndjson").read_text().splitlines()] == ["same"]


def test_a_key_that_does_not_reach_says_what_is_lacking(run: Run, guarded: Guarded) -> None:
    given = {"RANGEWATCH_URL": guarded.served.url, "RANGEWATCH_API_KEY": guarded.reader}
    assert run("tail", "borders", "--once", **given).returncode == 0
    refused = run("tail", "dead_letter", "--once", **given)
    assert refused.returncode == 1
    assert "needs the role admin; rita has read" in refused.stderr


def test_a_command_that_asks_too_often_waits_as_it_is_told(tmp_path: Path) -> None:
    limits = {"max_requests_per_s": 2, "max_requests_burst": 1, "open_metrics": True}
    with running(tmp_path, **limits) as service, connected(service.url) as client:

        def has_waited() -> bool:
            assert send(client, "GET", "/v1/queries").status_code == 200
            return 'requests_refused_total{reason="quota"} 0.0' not in service.plain.get("/metrics").text

        eventually(has_waited, "a request that was refused and came again")


@pytest.mark.parametrize("junk", ["two words", "ключ", "a\tb"])
def test_what_is_no_key_is_refused_before_it_is_sent_and_not_shown(
    run: Run, guarded: Guarded, junk: str
) -> None:
    done = run("history", "--url", guarded.served.url, RANGEWATCH_API_KEY=junk)
    assert done.returncode == 2
    assert "RANGEWATCH_API_KEY" in done.stderr
    assert junk not in done.stderr


def test_a_file_with_the_key_that_is_not_there_is_named(run: Run, tmp_path: Path) -> None:
    done = run("history", RANGEWATCH_API_KEY_FILE=str(tmp_path / "none"))
    assert done.returncode == 2
    assert str(tmp_path / "none") in done.stderr


def test_no_command_takes_a_key_as_an_argument(run: Run) -> None:
    for command in (
        ["history"],
        ["tail"],
        ["replay"],
        ["queries", "import"],
        ["queries", "export"],
        ["serve"],
    ):
        usage = run(*command, "--help").stdout
        assert not re.search(r"--\S*(api-key|password|secret|token)(?!-file|\S*-file)\b", usage), command


# ---- where a service without keys may be


@pytest.mark.parametrize("host", ["0.0.0.0", "example.org"])
def test_without_keys_it_does_not_start_beyond_this_machine(tmp_path: Path, host: str) -> None:
    done = rangewatch("serve", "--port", "0", "--log", f"sqlite:{tmp_path / 'log.db'}", "--host", host)
    assert done.returncode == 2
    assert all(word in done.stderr for word in (host, "keys_file", "rangewatch keys new", "allow_open"))
    assert list(tmp_path.iterdir()) == []


def test_an_explicit_setting_lets_it_start_there(tmp_path: Path) -> None:
    with serving(tmp_path, "--host", "0.0.0.0", RANGEWATCH_ALLOW_OPEN="true") as served:
        url = served.url.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(f"{url}/v1/queries").status_code == 200


@pytest.mark.parametrize("text", ["[[keys]]\n", "\x00"])
def test_it_does_not_start_with_keys_that_it_cannot_read(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(text)
    done = rangewatch("serve", "--port", "0", "--log", f"sqlite:{tmp_path / 'log.db'}", "--keys-file", file)
    assert done.returncode == 2
    assert str(file) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_secret_is_no_flag_and_no_abbreviation_of_one(run: Run, tmp_path: Path) -> None:
    for flag in (
        "--kafka-sasl-plain-password",
        "--kafka-ssl-password",
        "--tls-key-password",
        "--tls-key-passw",
    ):
        done = run("serve", "--log", f"sqlite:{tmp_path / 'log.db'}", flag, "hunter2")
        assert done.returncode == 2
        assert flag in done.stderr
