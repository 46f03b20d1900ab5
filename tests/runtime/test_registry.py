"""Schemas of a registry that is really there, well or in trouble, and what the worker does meanwhile."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

import service.registry
from service.deliveries import Delivery
from service.engine.commands import PutQuery, PutSource
from service.engine.engine import Engine
from service.log.port import Message, TopicPartition
from service.log.sqlite import SqliteLog
from service.metrics import Metrics
from service.registry import NoRegistry, Registry, SchemasUnavailable
from service.requests import CommandRequest
from service.rows import Registered
from service.settings import Settings, SettingsError, load_settings
from service.worker import Worker
from tests.api.harness import eventually
from tests.certificates import Authority
from tests.schema_registry import FakeRegistry, basic, schema_registry
from tests.unit.encoders import AVRO_FRAMED, BODY, SCHEMA, avro, framed

WAIT_S = 30.0
TEXT = json.dumps(SCHEMA)


@pytest.fixture
def there() -> Iterator[FakeRegistry]:
    with schema_registry() as registry:
        yield registry


def made(there: FakeRegistry, **settings: Any) -> Registry:
    return Registry(Settings(schema_registry_url=there.url, **settings))


@pytest.fixture
def registry(there: FakeRegistry) -> Iterator[Registry]:
    registry = made(there, schema_registry_timeout_s=0.5)
    yield registry
    registry.close()


def test_a_schema_is_asked_for_once(there: FakeRegistry, registry: Registry) -> None:
    there.put(7, SCHEMA)
    there.put(8, "syntax", schemaType="PROTOBUF", references=[{"name": "x"}])
    assert registry.look([7]) == {}
    assert registry.wait([7, 8, 9], WAIT_S) == {
        7: Registered(TEXT),
        8: Registered("syntax", "PROTOBUF", True),
        9: None,
    }
    assert registry.look([7, 8, 9]) == registry.wait([7, 8, 9], WAIT_S)
    assert sorted(there.asked) == [f"/schemas/ids/{id}" for id in (7, 8, 9)]
    assert registry.trouble is None


@pytest.mark.parametrize(
    "mood",
    [500, 503, 404, 401, "moved", "garbage", "no schema", "silence", "cut", "slow head", "slow body"],
)
def test_a_registry_in_trouble_is_asked_again(
    there: FakeRegistry, registry: Registry, mood: str | int
) -> None:
    there.put(7, SCHEMA)
    there.mood = mood
    news = threading.Event()
    registry.when_news(news.set)
    with pytest.raises(SchemasUnavailable) as caught:
        registry.wait([7], WAIT_S)
    assert there.url in str(caught.value)
    assert str(caught.value) == registry.trouble
    assert news.wait(WAIT_S)
    there.mood = "well"
    there.heard.set()
    eventually(lambda: registry.look([7]) == {7: Registered(TEXT)}, "the schema is there")
    assert registry.trouble is None


@pytest.mark.parametrize("mood", ["silence", "slow head", "slow body"])
def test_an_answer_has_one_deadline_however_it_trickles_in(
    there: FakeRegistry, registry: Registry, mood: str
) -> None:
    """Each byte of it comes soon enough, and the next schema is asked for all the same."""
    there.put(7, SCHEMA)
    there.mood = mood
    with pytest.raises(SchemasUnavailable, match="takes longer than 0"):
        registry.wait([7], WAIT_S)
    there.mood = "well"
    there.put(8, SCHEMA)
    assert registry.wait([8], WAIT_S) == {8: Registered(TEXT)}


def test_an_answer_that_is_too_long_is_not_read_to_its_end(
    there: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.registry, "MAX_ANSWER_BYTES", 1_000)
    there.put(7, "s" * 900)
    there.put(8, "s" * 1_000)
    registry = made(there)
    assert registry.wait([7], WAIT_S)
    with pytest.raises(SchemasUnavailable, match="more than 1000 bytes"):
        registry.wait([8], WAIT_S)
    registry.close()


def test_no_other_address_is_followed(there: FakeRegistry, registry: Registry) -> None:
    """It would be shown the secrets that are for this one."""
    there.mood = "moved"
    with pytest.raises(SchemasUnavailable, match="answers 301"):
        registry.wait([7], WAIT_S)
    assert set(there.asked) == {"/schemas/ids/7"}


def test_so_many_schemas_are_kept(
    there: FakeRegistry, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.registry, "MAX_KEPT", 2)
    for id in (7, 8, 9):
        there.put(id, SCHEMA)
        registry.wait([id], WAIT_S)
    assert registry.look([8, 9]).keys() == {8, 9}
    assert registry.wait([7], WAIT_S) and there.asked.count("/schemas/ids/7") == 2


def test_a_schema_that_always_fails_holds_up_no_other(there: FakeRegistry, registry: Registry) -> None:
    there.put(8, SCHEMA)
    there.failing.add(7)
    with pytest.raises(SchemasUnavailable, match="/7"):
        registry.wait([7], WAIT_S)
    assert registry.wait([8], WAIT_S) == {8: Registered(TEXT)}
    assert "/7" in (registry.trouble or "")
    there.put(7, SCHEMA)
    there.failing.clear()
    eventually(lambda: registry.look([7]), "it is there as well")
    assert registry.trouble is None


def test_a_good_schema_is_tried_before_bad_ones_are_tried_again(
    there: FakeRegistry, registry: Registry
) -> None:
    bad = range(100, 120)
    there.put(8, SCHEMA)
    there.failing.update(bad)
    registry.look(bad)
    assert registry.wait([8], WAIT_S) == {8: Registered(TEXT)}
    before = there.asked[: there.asked.index("/schemas/ids/8")]
    assert len(before) == len(set(before)), "each of them once, and no pause for all"


def test_what_nobody_asks_for_any_more_is_not_tried(
    there: FakeRegistry, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.registry, "FORGOTTEN_S", 0.05)
    there.failing.add(7)
    with pytest.raises(SchemasUnavailable):
        registry.wait([7], WAIT_S)
    eventually(lambda: registry.trouble is None, "it is forgotten")
    tried = there.asked.count("/schemas/ids/7")
    there.put(8, SCHEMA)
    assert registry.wait([8], WAIT_S)
    assert there.asked.count("/schemas/ids/7") == tried


def test_an_id_that_no_registry_can_have_is_unknown(there: FakeRegistry, registry: Registry) -> None:
    assert registry.wait([2**31, 2**32 - 1], WAIT_S) == {2**31: None, 2**32 - 1: None}
    assert registry.trouble is None


@pytest.mark.parametrize("token", ["hush\n", "hu\x01sh", "hüsh"])
def test_a_token_that_no_header_can_have_is_refused_and_not_quoted(there: FakeRegistry, token: str) -> None:
    with pytest.raises(SettingsError) as refused:
        made(there, schema_registry_token=SecretStr(token))
    assert "sh" not in str(refused.value).removeprefix("schema_registry_token")


def test_a_registry_that_is_not_there(there: FakeRegistry) -> None:
    gone = Registry(Settings(schema_registry_url="http://127.0.0.1:1", schema_registry_timeout_s=0.5))
    with pytest.raises(SchemasUnavailable, match="cannot be asked"):
        gone.wait([7], WAIT_S)
    gone.close()
    with pytest.raises(SchemasUnavailable, match="schema_registry_url"):
        NoRegistry().wait([7], WAIT_S)


def test_who_this_client_is(there: FakeRegistry, tmp_path: Path) -> None:
    there.put(7, SCHEMA)
    there.wanted_authorization = basic("me", "secret")
    named = made(there, schema_registry_user="me", schema_registry_password=SecretStr("secret"))
    assert named.wait([7], WAIT_S) == {7: Registered(TEXT)}
    named.close()
    there.wanted_authorization = "Bearer new"
    file = tmp_path / "token"
    file.write_text("old\n")
    other = made(there, schema_registry_token_file=str(file))
    with pytest.raises(SchemasUnavailable, match="schema_registry_token") as caught:
        other.wait([7], WAIT_S)
    assert "old" not in str(caught.value)
    file.write_text("new\n")
    eventually(lambda: 7 in other.look([7]), "the token is read anew")
    other.close()


def test_a_registry_behind_tls_that_wants_a_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, client = authority.sign("server"), authority.sign("client", password="the-password")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.cert, server.key)
    context.load_verify_locations(authority.cert)
    context.verify_mode = ssl.CERT_REQUIRED
    (tmp_path / "password").write_text("the-password\n")
    shown: dict[str, Any] = {
        "schema_registry_cafile": str(authority.cert),
        "schema_registry_certfile": str(client.cert),
        "schema_registry_keyfile": str(client.key),
        "schema_registry_key_password_file": str(tmp_path / "password"),
    }
    with schema_registry(context) as there:
        there.put(7, SCHEMA)
        good = made(there, **shown)
        assert good.wait([7], WAIT_S) == {7: Registered(TEXT)}
        good.close()
        strangers: list[dict[str, Any]] = [
            {"schema_registry_cafile": str(authority.cert)},
            {**shown, "schema_registry_cafile": str(Authority(tmp_path, "stranger").cert)},
        ]
        for settings in strangers:
            stranger = made(there, **settings)
            with pytest.raises(SchemasUnavailable, match="cannot be asked"):
                stranger.wait([7], WAIT_S)
            stranger.close()
        with pytest.raises(SettingsError, match="schema_registry_certfile"):
            made(there, **{**shown, "schema_registry_key_password_file": str(authority.cert)})


@pytest.mark.parametrize(
    "flags",
    [
        {"schema_registry_url": "registry:8081"},
        {"schema_registry_url": "http://me:secret@registry"},
        {"schema_registry_url": "http://registry/?key=secret"},
        {"schema_registry_token": "a", "schema_registry_user": "b"},
        {"schema_registry_keyfile": "key.pem"},
    ],
)
def test_settings_that_are_wrong(flags: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="schema_registry"):
        load_settings(flags)


# ---- the worker


class World:
    """A worker on a file, with a source whose schemas the registry has, and one in JSON."""

    def __init__(self, file: Path, registry: Registry) -> None:
        self.log = SqliteLog(str(file))
        self.metrics = Metrics()
        self.worker = Worker(
            self.log,
            Engine,
            self.metrics,
            clock=lambda: 1000,
            max_message_bytes=1 << 20,
            max_batch_events=100,
            schemas=registry,
        )
        self.worker.open()
        for command in (
            PutSource("s", {**BODY, "format": AVRO_FRAMED}),
            PutSource("j", BODY),
            PutQuery(None, {"id": "q", "source": "s", "where": "x > 0"}),
            PutQuery(None, {"id": "p", "source": "j", "where": "x > 0"}),
        ):
            self.worker.step([CommandRequest([command], True, lambda _: None, _fail)], timeout_s=0)
        self.steps(4)

    def steps(self, many: int) -> None:
        for _ in range(many):
            self.worker.step([], timeout_s=0)

    def until(self, holds: Any, what: str) -> None:
        def stepped() -> bool:
            self.steps(1)
            return bool(holds())

        eventually(stepped, what)

    def send(self, *messages: bytes, topic: str = "events.s") -> None:
        self.log.append_events(topic, [Message(None, message) for message in messages])

    def position(self, topic: str = "events.s") -> int:
        position = self.log.position(TopicPartition(topic, 0))
        return position.event if position else 0

    def records(self, topic: str) -> list[Any]:
        found, _ = self.log.read(topic, after=0, limit=1000)
        return [json.loads(record.value or b"") for record in found]


def _fail(error: BaseException) -> None:
    raise error


@pytest.fixture
def world(tmp_path: Path, registry: Registry) -> Iterator[World]:
    world = World(tmp_path / "log.db", registry)
    yield world
    world.worker.close()


def event(x: float, id: int = 7, stream: str = "a") -> bytes:
    return framed(id, avro({"stream_id": stream, "x": x, "position": {"lat": 1.0, "z": b""}, "kind": "t"}))


def test_events_wait_for_their_schemas_and_no_others(there: FakeRegistry, world: World) -> None:
    there.put(7, SCHEMA)
    there.put(8, SCHEMA)
    there.mood = 503
    world.send(event(1), event(2, stream="b"))
    world.send(json.dumps({"stream_id": "c", "x": 3}).encode(), topic="events.j")
    world.until(lambda: world.worker.held is not None, "the worker says what is wrong")
    assert world.worker.held is not None
    assert "503" in world.worker.held
    world.steps(1)
    assert b"rangewatch_partitions_held 1.0" in world.metrics.text()
    world.until(lambda: world.position("events.j") == 1, "the other source goes on")
    world.send(event(3), event(4, id=8))
    world.steps(3)
    assert world.position() == 0
    assert [record["stream_id"] for record in world.records("matches")] == ["c"]
    assert world.records("dead_letter") == []
    # A query that comes meanwhile is active from a definite position: before all that wait.
    put = PutQuery(None, {"id": "late", "source": "s", "where": "x > 1"})
    world.worker.step([CommandRequest([put], True, lambda _: None, _fail)], timeout_s=0)
    world.steps(2)
    there.mood = "well"
    world.until(lambda: world.position() == 4, "the events are read")
    assert world.worker.held is None
    assert b"rangewatch_partitions_held 0.0" in world.metrics.text()
    matches = [record for record in world.records("matches") if record["source"] == "s"]
    assert [record["origin"]["offset"] for record in matches] == [0, 1, 2, 3]
    assert [record["queries"] for record in matches] == [["q"], *[["late", "q"]] * 3]
    assert world.records("dead_letter") == []


def test_an_answer_that_trickles_in_is_told(there: FakeRegistry, world: World) -> None:
    there.put(7, SCHEMA)
    there.mood = "slow head"
    world.send(event(1))
    world.until(lambda: world.worker.held is not None, "the worker says what is wrong")
    assert "takes longer than 0.5 s" in (world.worker.held or "")
    there.mood = "well"
    world.until(lambda: world.position() == 1, "the event is read")
    assert world.worker.held is None


def test_an_id_that_the_registry_does_not_know_is_a_dead_letter(there: FakeRegistry, world: World) -> None:
    there.put(7, SCHEMA)
    there.put(9, {"type": "string"})
    world.send(event(1), event(2, id=8), event(3, id=9), b"\x01", event(4))
    world.until(lambda: world.position() == 5, "all are read")
    letters = [(one["origin"]["offset"], one["reason"]) for one in world.records("dead_letter")]
    assert letters == [(1, "unknown_schema"), (2, "bad_schema"), (3, "malformed")]
    assert [one["origin"]["offset"] for one in world.records("matches")] == [0, 4]


def test_a_worker_that_starts_anew_reads_what_had_waited(
    there: FakeRegistry, world: World, registry: Registry
) -> None:
    there.put(7, SCHEMA)
    there.mood = 500
    world.send(event(1))
    world.until(lambda: world.worker.held is not None, "it waits")
    world.worker.close()
    world.worker.open()
    assert world.worker.held is None
    there.mood = "well"
    world.until(lambda: world.position() == 1, "it is read")
    assert len(world.records("matches")) == 1


def test_whoever_waits_for_an_event_that_waits_is_told(there: FakeRegistry, world: World) -> None:
    there.put(7, SCHEMA)
    there.mood = 500
    told: list[Any] = []
    delivery = Delivery("events.s", [Message(b"a", event(1))], told.append, told.append)
    world.worker.step([delivery], timeout_s=0)
    world.until(lambda: told, "whoever waits is told")
    assert isinstance(told[0], SchemasUnavailable)
    there.mood = "well"
    world.until(lambda: world.position() == 1, "it is read all the same")
    assert len(told) == 1
    delivery = Delivery("events.s", [Message(b"a", event(2))], told.append, told.append)
    world.worker.step([delivery], timeout_s=0)
    world.until(lambda: len(told) == 2, "the next one is heard")
    assert [output.topic for output in told[1].outputs] == ["matches"]


def test_a_source_that_changes_while_its_events_wait(there: FakeRegistry, world: World) -> None:
    """They are read by what the source says when they are read."""
    there.mood = 500
    world.send(event(1))
    world.until(lambda: world.worker.held is not None, "it waits")
    put = PutSource("s", {**BODY, "format": {"type": "avro", "schema": SCHEMA}})
    world.worker.step([CommandRequest([put], True, lambda _: None, _fail)], timeout_s=0)
    world.until(lambda: world.position() == 1, "it is read")
    assert [one["reason"] for one in world.records("dead_letter")] == ["malformed"]
