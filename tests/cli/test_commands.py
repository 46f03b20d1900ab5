"""The commands against a service, as a user runs them."""

from __future__ import annotations

import gzip
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.harness import TIMEOUT_S, eventually
from tests.cli.conftest import COMMAND, Served, environment, rangewatch

DEMO = Path(__file__).parents[2] / "deploy" / "demo"


@pytest.fixture
def source(client: httpx.Client, request: pytest.FixtureRequest) -> str:
    """A source that is named like the test."""
    name = request.node.name.split("[")[0]
    body = {"attributes": {"x": "number", "kind": "category"}}
    client.put(f"/v1/sources/{name}", json=body).raise_for_status()
    return str(name)


def register(client: httpx.Client, source: str, name: str, where: str, **fields: Any) -> str:
    id = f"{source}.{name}"
    body = {"source": source, "where": where, **fields}
    client.put(f"/v1/queries/{id}", json=body).raise_for_status()
    return id


def last(client: httpx.Client, source: str, stream: str) -> dict[str, Any]:
    """A stream, once it is known."""

    def found() -> dict[str, Any] | None:
        response = client.get(f"/v1/streams/{stream}", params={"source": source})
        return response.json() if response.status_code == 200 else None

    found_stream: dict[str, Any] = eventually(found, f"stream {stream} is known")
    return found_stream


def test_replay_sends_a_file_and_says_how_much(
    service: Served, client: httpx.Client, source: str, tmp_path: Path
) -> None:
    file = tmp_path / "events.csv.gz"
    file.write_bytes(gzip.compress(b"stream_id,ts,x,kind\na,1,5,tug\na,2,,007\nb,3,bad,\nz,4,1,\n"))
    done = rangewatch("replay", file, "--source", source, "--url", service.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("4 events sent in ")
    last(client, source, "z")
    assert last(client, source, "a")["last"] == {"kind": "007"}
    letters = client.get("/v1/topics/dead_letter").json()["records"]
    assert [r["value"]["reason"] for r in letters if r["value"]["source"] == source] == ["not_a_number"]


def test_a_file_that_is_replayed_twice_holds_copies_if_it_has_ids(
    service: Served, client: httpx.Client, source: str, tmp_path: Path
) -> None:
    body = {"attributes": {"x": "number"}, "dedup": {"by": "event_id"}}
    client.put(f"/v1/sources/{source}", json=body).raise_for_status()
    file = tmp_path / "events.csv"
    file.write_text("stream_id,x,event_id\na,1,1\na,2,2\na,3,\n")
    for _ in range(2):
        assert rangewatch("replay", file, "--source", source, "--url", service.url).returncode == 0

    def refused() -> list[str]:
        letters = [one["value"] for one in client.get("/v1/topics/dead_letter").json()["records"]]
        return [json.loads(one["value"])["event_id"] for one in letters if one["source"] == source]

    eventually(lambda: len(refused()) == 2, "the copies are refused")
    assert refused() == ["1", "2"]


def test_replay_tells_of_rows_that_it_could_not_send(
    service: Served, client: httpx.Client, source: str, tmp_path: Path
) -> None:
    file = tmp_path / "events.ndjson"
    file.write_text('{"stream_id": "a", "x": 1}\n{broken\n{"stream_id": "z", "x": 1}\n')
    done = rangewatch("replay", file, "--source", source, "--url", service.url)
    assert done.returncode == 1
    assert done.stdout.startswith("2 events sent")
    assert "line 2: " in done.stderr
    assert last(client, source, "z")["last"] == {"x": 1.0}


def test_replay_in_time_takes_its_time(service: Served, source: str, tmp_path: Path) -> None:
    file = tmp_path / "events.csv"
    file.write_text("stream_id,ts,x\na,1000,1\na,9000,2\na,5000,3\na,21000,4\n")
    started = time.monotonic()
    done = rangewatch("replay", file, "--source", source, "--speed", "40", "--url", service.url)
    assert done.stdout.startswith("4 events sent")
    assert time.monotonic() - started >= 0.5


def test_replay_of_an_unknown_source_shows_how_to_create_it(service: Served, tmp_path: Path) -> None:
    file = tmp_path / "events.csv"
    file.write_text("stream_id,ts,speed,kind\na,1,5.5,tug\n")
    done = rangewatch("replay", file, "--source", "ships", "--url", service.url)
    assert done.returncode == 1
    assert '-d \'{"attributes": {"speed": "number", "kind": "category"}}\'' in done.stderr
    assert f"{service.url}/v1/sources/ships" in done.stderr


def test_queries_go_out_and_come_back(
    service: Served, client: httpx.Client, source: str, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        register(client, source, name, "x > 1", tags={"é": "🚢"})
    file = tmp_path / "queries.ndjson"
    done = rangewatch("queries", "export", file, "--source", source, "--url", service.url)
    assert (done.returncode, done.stdout) == (0, "")
    assert [json.loads(line)["id"] for line in file.read_text().splitlines()] == [
        f"{source}.a",
        f"{source}.b",
    ]
    shown = rangewatch("queries", "export", "-", "--source", source, "--url", service.url)
    assert shown.stdout == file.read_text()
    client.delete(f"/v1/queries/{source}.a").raise_for_status()
    done = rangewatch("queries", "import", file, "--url", service.url)
    assert done.returncode == 0
    assert done.stdout == "2 queries: 1 created, 0 replaced, 1 unchanged, 0 refused\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["queries.ndjson"]


def test_the_history_tells_who_changed_what(service: Served, client: httpx.Client, source: str) -> None:
    path = f"/v1/queries/{source}.audited"
    body = {"source": source, "where": "x > 1"}
    client.put(path, json=body, headers={"X-Actor": "ana"}).raise_for_status()
    client.patch(path, json={"where": "x > 2"}).raise_for_status()
    client.delete(path).raise_for_status()
    done = rangewatch("history", f"{source}.audited", "--url", service.url)
    assert done.returncode == 0, done.stderr
    first, second, third = done.stdout.splitlines()
    assert first.endswith(f"{source}.audited  written by ana")
    assert second.endswith(f"{source}.audited  changed: where")
    assert third.endswith(f"{source}.audited  deleted")
    done = rangewatch("history", f"{source}.audited", "--json", "--url", service.url)
    assert [json.loads(line)["what"] for line in done.stdout.splitlines()] == [
        "written",
        "changed",
        "deleted",
    ]


def test_a_refused_import_names_the_lines(
    service: Served, client: httpx.Client, source: str, tmp_path: Path
) -> None:
    bodies: list[dict[str, Any]] = [
        {"id": f"{source}.a", "source": source, "where": "x > 0"},
        {"id": f"{source}.b", "source": source, "where": "speed > 0"},
    ]
    file = tmp_path / "queries.ndjson"
    file.write_text("\n".join(map(json.dumps, bodies)) + "\n{\n")
    done = rangewatch("queries", "import", file, "--url", service.url)
    assert done.returncode == 1
    assert "line 3: " in done.stderr
    assert client.get(f"/v1/queries/{source}.a").status_code == 404
    done = rangewatch("queries", "import", file, "--each", "--url", service.url)
    assert done.returncode == 1
    assert done.stdout == "3 queries: 1 created, 0 replaced, 0 unchanged, 2 refused\n"
    assert "line 2, where: " in done.stderr
    assert client.get(f"/v1/queries/{source}.a").status_code == 200


def test_tail_shows_records_to_people_and_machines(
    service: Served, client: httpx.Client, source: str
) -> None:
    id = register(client, source, "q", "x > 0", select=["x"])
    events = [
        {"stream_id": "s", "ts": 0, "x": 1},
        {"stream_id": "s", "ts": 1, "x": -1},
        {"stream_id": "s", "x": "1"},
    ]
    client.post("/v1/events", params={"source": source, "wait": "true"}, json=events).raise_for_status()

    def tail(topic: str, *more: str) -> list[str]:
        done = rangewatch("tail", topic, "--once", "--after", "-1000", "--url", service.url, *more)
        assert done.returncode == 0, done.stderr
        return [line for line in done.stdout.splitlines() if source in line]

    assert tail("matches") == [f"1970-01-01 00:00:00  {source}/s  {id}  x=1.0"]
    assert tail("borders") == [
        f"1970-01-01 00:00:00  {source}/s  + {id}    x=1.0",
        f"1970-01-01 00:00:00  {source}/s  - {id}    x=-1.0",
    ]
    (letter,) = tail("dead_letter")
    assert letter.startswith(f"{source}/s  not_a_number")
    records = [json.loads(line) for line in tail("borders", "--json")]
    assert [record["value"]["seq"] for record in records] == [1, 2]
    assert records[0].keys() == {"partition", "offset", "key", "value"}
    assert tail("joins") == []


#: Clears the screen, sets the clipboard, begins a line that looks like another record, and turns text around.
HOSTILE = "v\x1b[2J\x1b]52;c;cm0=\x07\r\n1970-01-01  s/\x7f\x9b31m\u2028\u202e"
SHOWN = r"v\x1b[2J\x1b]52;c;cm0=\x07\r\n1970-01-01  s/\x7f\x9b31m\u2028\u202e"


def test_what_producers_and_clients_name_does_nothing_to_a_terminal(
    service: Served, client: httpx.Client, source: str
) -> None:
    id = register(client, source, "q", "x > 0")
    sent = [{"stream_id": HOSTILE, "ts": 1, "x": 1}, {"stream_id": HOSTILE, "ts": 2, "x": HOSTILE}]
    params = {"source": source, "wait": "true"}
    client.post("/v1/events", params=params, content="\n".join(map(json.dumps, sent))).raise_for_status()

    def tail(topic: str, *more: str) -> list[str]:
        command = [COMMAND, "tail", topic, "--once", "--after", "-1000", "--url", service.url, *more]
        done = subprocess.run(command, capture_output=True, env=environment(), check=True)
        # As bytes till here: Python would make one line break of several.
        return [line for line in done.stdout.decode().split("\n") if source in line]

    (match,), (border,), (letter,) = tail("matches"), tail("borders"), tail("dead_letter")
    assert f"  {source}/{SHOWN}  {id}" in match
    assert f"  {source}/{SHOWN}  + {id}" in border
    assert f"{source}/{SHOWN}  not_a_number" in letter
    assert (match + border + letter).isprintable()
    (record,) = map(json.loads, tail("matches", "--json"))
    assert record["value"]["stream_id"] == HOSTILE


def test_tail_follows(service: Served, client: httpx.Client, source: str, tmp_path: Path) -> None:
    register(client, source, "q", "x > 0")
    out = tmp_path / "out"
    with out.open("wb") as stdout:
        process = subprocess.Popen(
            [COMMAND, "tail", "matches", "--json", "--url", service.url], stdout=stdout, env=environment()
        )
    try:
        for x in (1, 2):
            client.post("/v1/events", params={"source": source}, json={"stream_id": "s", "ts": x, "x": x})
            eventually(
                lambda x=x: f'"ts": {x}' in out.read_text() and source in out.read_text(),
                "the record is shown",
            )
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 130
    finally:
        process.kill()
        process.wait()


def test_a_progress_bar_is_shown_to_a_terminal(service: Served, source: str, tmp_path: Path) -> None:
    file = tmp_path / "events.csv"
    file.write_text("stream_id,x\na,1\n")
    ours, theirs = pty.openpty()
    command = [COMMAND, "replay", str(file), "--source", source, "--url", service.url]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=theirs, env=environment(TERM="xterm"), check=True
    )
    os.close(theirs)
    assert b"100%" in os.read(ours, 65_536)
    os.close(ours)
    assert done.stdout.startswith(b"1 events sent")


def test_output_to_a_reader_that_goes_away_is_no_error(service: Served) -> None:
    command = f"{COMMAND} match {DEMO}/weather_queries.jsonl {DEMO}/weather.csv.gz | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("name", "matches"), [("weather", 93_631), ("stocks", 20_606)])
def test_match_works_without_a_service(name: str, matches: int) -> None:
    done = rangewatch("match", DEMO / f"{name}_queries.jsonl", DEMO / f"{name}.csv.gz")
    assert done.returncode == 0
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert sum(len(one["queries"]) for one in found) == matches
    assert f", {matches} matches, 0 refused" in done.stderr
    assert all(one["queries"] == sorted(one["queries"]) for one in found)


def test_match_tells_what_it_does_not_take(tmp_path: Path) -> None:
    queries = tmp_path / "queries.ndjson"
    queries.write_text(
        '{"id": "q", "source": "s", "where": "x > 0"}\n{"id": "r", "source": "t", "where": "x > 0"}\n'
    )
    events = tmp_path / "events.jsonl"
    events.write_text(
        '{"stream_id": "a", "x": 1}\nbad\n[{"stream_id": "b", "x": 2}, {"stream_id": "c", "x": "3"}]\n'
    )
    assert rangewatch("match", queries, events).returncode == 2
    done = rangewatch("match", queries, events, "--source", "s", "--attributes", "x=number")
    assert done.returncode == 0
    assert [(one["row"], one["queries"]) for one in map(json.loads, done.stdout.splitlines())] == [
        (0, ["q"]),
        (2, ["q"]),
    ]
    assert "event 1: line 2: " in done.stderr
    assert "event 3: 'x' must be a number" in done.stderr
    wrong = rangewatch("match", queries, events, "--source", "s", "--attributes", "y=number")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "unknown_attribute" in wrong.stderr
    assert rangewatch("match", queries, events, "--source", "u").returncode == 1


@pytest.mark.parametrize(
    "args",
    [
        ("replay", DEMO / "stocks.csv.gz", "--source", "s"),
        ("queries", "import", DEMO / "stocks_queries.jsonl"),
        ("queries", "export", "-"),
        ("tail", "borders"),
    ],
)
def test_a_service_that_is_not_there_is_said_so(args: tuple[object, ...]) -> None:
    done = rangewatch(*args, RANGEWATCH_URL="http://127.0.0.1:9")
    assert (done.returncode, done.stdout) == (3, "")
    assert "nothing answers at http://127.0.0.1:9" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("fly",),
        ("replay", "nowhere.csv", "--source", "s"),
        ("replay", DEMO / "stocks.csv.gz", "--source", "s", "--speed", "-1"),
        ("queries", "import", "nowhere"),
        ("match", "nowhere", "nowhere"),
        ("match", DEMO / "README.md", DEMO / "stocks.csv.gz", "--attributes", "x=int"),
        ("tail", "queries"),
        ("tail", "borders", "--log", "sqlite:x"),
        ("serve", "--port", "eighty"),
        ("serve", "--config", "nowhere.toml"),
    ],
)
def test_wrong_usage_is_2_and_one_clear_message(args: tuple[object, ...]) -> None:
    done = rangewatch(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    assert done.stderr.strip()


def test_help_names_every_command_and_every_setting() -> None:
    from service.settings import Settings

    shown = rangewatch("--help").stdout
    for command in ("serve", "replay", "queries", "tail", "match", "exit codes"):
        assert command in shown
    shown = rangewatch("serve", "--help").stdout
    for name in Settings.model_fields:
        assert f"--{name.replace('_', '-')}" in shown
    assert rangewatch("--version").stdout.startswith("rangewatch ")
    assert subprocess.run(
        [sys.executable, "-m", "service", "--version"], capture_output=True, check=True
    ).stdout.startswith(b"rangewatch ")
