"""Listening over HTTP: a picture, then every change once."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from service.api import live as live_api
from service.engine.engine import Engine
from service.keys import Role, edit, new_key, with_key, without_key
from tests.api.conftest import OwnSource
from tests.api.harness import TIMEOUT_S, Running, eventually, running

Event = tuple[str, Any]


class Listener:
    """One client of /v1/live."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.iter_lines()

    def __next__(self) -> Event:
        """The next event. Heartbeats are waited through, but not for ever."""
        name, heartbeats = "", 0
        for line in self._lines:
            heartbeats += line.startswith(":")
            assert heartbeats < 4, "there is nothing to tell"
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                return name, json.loads(value)
        raise StopIteration

    def __iter__(self) -> Iterator[Event]:
        return self

    def picture(self) -> dict[str, list[str]]:
        """Who is inside what when the news begin."""
        inside: dict[str, list[str]] = {}
        for name, data in self:
            if name == "live":
                assert data == {"streams": len(inside)}
                return inside
            assert name == "snapshot"
            inside[data["stream_id"]] = data["inside"]
        raise AssertionError("no news")


@contextmanager
def listening(service: Running, source: str, *, key: str | None = None, **asked: Any) -> Iterator[Listener]:
    params = {"source": source, **asked}
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    with service.plain.stream("GET", "/v1/live", params=params, headers=headers) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Listener(response)


@contextmanager
def silent(service: Running, source: str) -> Iterator[socket.socket]:
    """A client that asks and does not read."""
    with socket.create_connection(urlsplit(service.url).netloc.split(":"), TIMEOUT_S) as connection:
        asked = f"GET /v1/live?source={source} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        connection.sendall(asked.encode())
        yield connection


def test_a_picture_then_the_records_as_they_are_in_the_topic(service: Running, source: OwnSource) -> None:
    q, r = source.register("q")["id"], source.register("r", "x > 5")["id"]
    source.send({"stream_id": "a", "x": 9}, {"stream_id": "b", "x": 1}, {"stream_id": "c", "x": 0})
    with listening(service, source.name, topic=["borders", "matches"]) as live:
        assert live.picture() == {"a": [q, r], "b": [q]}
        answer = source.send(
            {"stream_id": "b", "x": 6}, {"stream_id": "c", "x": 0}, {"stream_id": "a", "x": 0}
        )
        assert [next(live) for _ in answer["outputs"]] == [
            (output["topic"], output["value"]) for output in answer["outputs"]
        ]
        service.plain.delete(f"/v1/queries/{r}").raise_for_status()
        name, record = next(live)
        assert (name, record["stream_id"], record["leave"], record["reason"]) == (
            "borders",
            "b",
            [r],
            "deleted",
        )


def test_only_what_was_asked_for(service: Running, source: OwnSource) -> None:
    q, r = source.register("q")["id"], source.register("r", "x > 5")["id"]
    source.send({"stream_id": "a", "x": 9}, {"stream_id": "b", "x": 1}, {"stream_id": "c", "x": 0})
    with (
        listening(service, source.name, query=r) as of_r,
        listening(service, source.name, stream_id=["c", "nobody"]) as of_c,
        listening(service, source.name, stream_id="b", query=[q, r], topic="matches") as matches,
    ):
        assert of_r.picture() == {"a": [r]}
        assert of_c.picture() == {"c": []}, "who was asked for by name is told of, inside or not"
        assert matches.picture() == {"b": [q]}
        source.send({"stream_id": "c", "x": 1}, {"stream_id": "b", "x": 7}, {"stream_id": "b", "x": 0})
        source.send({"stream_id": "c", "x": 8})
        told = [next(of_r)[1] for _ in range(3)]
        assert [(one["stream_id"], one["leave"], one["enter"]) for one in told] == [
            ("b", [], [r]),
            ("b", sorted([q, r]), []),
            ("c", [], [r]),
        ]
        assert [next(of_c)[1]["enter"] for _ in range(2)] == [[q], [r]]
        name, record = next(matches)
        assert (name, record["stream_id"], sorted(record["queries"])) == ("matches", "b", [q, r])


def test_aggregates_are_told_by_their_query(service: Running, source: OwnSource) -> None:
    q = source.register("q", aggregates={"of": ["x"]})["id"]
    source.register("other", aggregates={})
    with listening(service, source.name, topic="aggregates", query=q, stream_id="nobody") as live:
        assert live.picture() == {}
        source.send({"stream_id": "a", "x": 9})
        name, record = next(live)
        assert (name, record["query"], record["count"]) == ("aggregates", q, 1)


@pytest.mark.parametrize("seed", range(3))
def test_picture_and_news_meet_without_a_gap_or_an_overlap(
    service: Running, source: OwnSource, seed: int
) -> None:
    for number in range(5):
        source.register(f"q{number}", f"{number} <= x < {number + 3}")
    rng = random.Random(seed)
    ended = threading.Event()

    def write() -> None:
        for _ in range(60):
            moved = [{"stream_id": f"s{rng.randrange(9)}", "x": rng.randrange(9)} for _ in range(5)]
            source.send(*moved)
        source.send({"stream_id": "last", "x": 0})
        ended.set()

    writing = threading.Thread(target=write)
    writing.start()
    rounds = 0
    while not ended.is_set() or not rounds:
        with listening(service, source.name) as live:
            inside = {stream: set(queries) for stream, queries in live.picture().items()}
            if "last" not in inside:
                for _, record in live:
                    held = inside.setdefault(record["stream_id"], set())
                    assert held >= set(record["leave"]) and held.isdisjoint(record["enter"]), "it balances"
                    held -= set(record["leave"])
                    held |= set(record["enter"])
                    if record["stream_id"] == "last" or rng.random() < 0.05:
                        break
            rounds += 1
    writing.join()
    with listening(service, source.name) as live:
        final = live.picture()
    for stream, queries in final.items():
        view = service.plain.get(f"/v1/streams/{stream}", params={"source": source.name}).json()
        assert view["inside"] == queries


def test_what_is_refused(service: Running, source: OwnSource) -> None:
    for params, status, reason, field in (
        ({}, 422, "missing_field", "source"),
        ({"source": "nobody"}, 422, "unknown_source", "source"),
        ({"source": source.name, "query": "nobody"}, 404, "unknown_id", "query"),
        ({"source": source.name, "topic": "dead_letter"}, 422, "bad_value", "topic"),
        ({"source": source.name, "streams": "a"}, 422, "unknown_field", "streams"),
    ):
        refused = service.refused("/v1/live", **params)
        problem = refused.json()
        assert (refused.status_code, problem["reason"]) == (status, reason), refused.text
        assert problem["field"] == field or field == "topic"


def test_limits_of_clients_of_records_and_of_the_picture(tmp_path: Path) -> None:
    limits = {"max_live_clients": 1, "max_live_records": 4, "max_live_snapshot": 6}
    with running(tmp_path, **limits) as service:
        source = OwnSource(service.plain)
        q = source.register("q", on=["enter", "leave"])["id"]
        with listening(service, source.name) as live:
            assert live.picture() == {}
            crowded = service.refused("/v1/live", source=source.name)
            assert crowded.status_code == 503 and "max_live_clients" in crowded.json()["detail"]
            source.send(*({"stream_id": f"s{number}", "x": 1} for number in range(4)))
            assert [next(live)[1]["stream_id"] for _ in range(4)] == ["s0", "s1", "s2", "s3"]
            source.send(*({"stream_id": f"t{number}", "x": 1} for number in range(5)))
            assert list(live) == [("cut", {"reason": "slow"})]
        eventually(lambda: len(service.runtime.hub) == 0, "the line is free again")
        large = service.refused("/v1/live", source=source.name)
        assert (large.status_code, large.json()["reason"]) == (422, "limit")
        eventually(lambda: len(service.runtime.hub) == 0, "a refused client holds no line")
        with listening(service, source.name, query=q) as live:
            assert len(live.picture()) == 9
        eventually(lambda: len(service.runtime.hub) == 0, "whoever hangs up leaves nothing behind")


def test_a_client_that_does_not_read_is_cut_by_its_bytes_and_others_hear_all(tmp_path: Path) -> None:
    most = 1_000_000
    with running(tmp_path, max_live_bytes=most) as service:
        source = OwnSource(service.plain)
        for number in range(100):
            source.register(f"{number:0>60}", on=["enter"])
        with listening(service, source.name) as quick, silent(service, source.name) as still:
            assert quick.picture() == {}
            eventually(lambda: len(service.runtime.hub) == 2, "both listen")
            sent = heard = 0
            while len(service.runtime.hub) == 2:
                streams = [f"s{sent + number}" for number in range(50)]
                source.send(*({"stream_id": stream, "x": 1} for stream in streams))
                told = [next(quick)[1] for _ in streams]
                assert [record["stream_id"] for record in told] == streams
                sent += len(streams)
                heard += sum(len(json.dumps(record)) for record in told)
                assert heard < 50 * most, "the kernel's buffers are smaller than that"
            assert heard > most
            text = b"".join(iter(lambda: still.recv(1 << 20), b""))
            assert b'event: cut\ndata: {"reason": "slow"}\n\n' in text
            assert 0 < text.count(b"event: borders") < sent, "what waited is lost"
            source.send({"stream_id": "last", "x": 1})
            assert next(quick)[1]["stream_id"] == "last"


class Fatal(BaseException):
    pass


def test_whoever_listens_is_cut_when_the_worker_dies(tmp_path: Path) -> None:
    def die(_: Engine) -> None:
        raise Fatal

    with pytest.raises(Fatal), running(tmp_path) as service:
        source = OwnSource(service.plain)
        with listening(service, source.name) as live:
            assert live.picture() == {}
            service.runtime.ask(die)
            assert list(live) == [("cut", {"reason": "stopping"})]


# ---- keys

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


class Keyed:
    """A service that asks for keys, and its own time by which they expire."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "keys.toml"
        self.now = NOW
        self.admin = self.key(role=Role.ADMIN)

    def key(self, *, role: Role = Role.READ, expires: datetime | None = None) -> str:
        text, key = new_key("ana", role, now=NOW, expires=expires)
        edit(self.file, lambda document: with_key(document, key))
        return text


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Keyed:
    return Keyed(tmp_path_factory.mktemp("keyed"))


@pytest.fixture(scope="module")
def asking(keyed: Keyed) -> Iterator[Running]:
    with running(keyed.file.parent, keys_file=str(keyed.file), now=lambda: keyed.now) as service:
        yield service


def _id(key: str) -> str:
    return key.split("_")[1]


def revoke(keyed: Keyed, key: str) -> None:
    edit(keyed.file, lambda document: without_key(document, _id(key)))


def replacing(old: str, new: str) -> Callable[[Keyed, str], None]:
    """A change of one key's lines."""

    def change(keyed: Keyed, key: str) -> None:
        def changed(document: str) -> str:
            before, mark, after = document.partition(f'id = "{_id(key)}"')
            assert old in after
            return before + mark + after.replace(old, new, 1)

        edit(keyed.file, changed)

    return change


@pytest.mark.parametrize(
    "change",
    [
        revoke,
        replacing("created", "expires = 2026-11-28T11:00:00Z\ncreated"),
        replacing('role = "read"', 'role = "write"'),
        replacing('tenant = "default"', 'tenant = "acme"'),
        replacing('hash = "sha256:', f'hash = "sha256:{"0" * 64}" #'),
    ],
    ids=["revoked", "expired", "role", "tenant", "another"],
)
def test_whoever_listens_hears_nothing_more_once_its_key_is_not_what_it_was(
    keyed: Keyed, asking: Running, change: Callable[[Keyed, str], None]
) -> None:
    source = OwnSource(asking.with_key(keyed.admin))
    source.register("q", on=["enter"])
    key, other = keyed.key(), keyed.key()
    with (
        listening(asking, source.name, key=key) as live,
        listening(asking, source.name, key=other) as goes_on,
    ):
        assert live.picture() == goes_on.picture() == {}
        source.send({"stream_id": "a", "x": 1})
        change(keyed, key)
        source.send({"stream_id": "b", "x": 1})
        heard = list(live)
        assert heard[-1] == ("cut", {"reason": "revoked"})
        assert "b" not in [record.get("stream_id") for _, record in heard], "at once"
        assert [next(goes_on)[1]["stream_id"] for _ in "ab"] == ["a", "b"], "another key of the same name"


def test_a_key_that_expires_is_noticed_though_there_is_nothing_to_tell(
    keyed: Keyed, asking: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_api, "_HEARTBEAT_S", 1e9)  # it would look at the key, too
    source = OwnSource(asking.with_key(keyed.admin))
    key = keyed.key(expires=NOW + timedelta(hours=1))
    with listening(asking, source.name, key=key) as live:
        assert live.picture() == {}
        keyed.now = NOW + timedelta(hours=1)
        assert list(live) == [("cut", {"reason": "revoked"})]
    eventually(lambda: len(asking.runtime.hub) == 0, "it leaves nothing behind")
