"""Events in Avro and Protobuf over HTTP, and what is said while the registry of their schemas is away."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.api.media import AVRO, BINARY, PROTOBUF
from service.api.messages import message_of_binary
from service.language import parse_source
from service.log.port import Message
from service.model import Reason, Refusal
from service.registry import NoRegistry, Registry, SchemasUnavailable
from service.settings import Settings
from tests.api.harness import Running, eventually, running
from tests.schema_registry import FakeRegistry, schema_registry
from tests.unit import encoders
from tests.unit.encoders import AVRO_FRAMED, BODY, PROTOBUF_FRAMED, SCHEMA, SEEN_INDEX, avro, framed, protobuf

EVENT = {"stream_id": "v-17", "ts": 5, "x": 1.0, "position": {"lat": 2.0}, "kind": "tug"}
IN_AVRO = avro({**EVENT, "position": {"lat": 2.0, "z": b""}})
_numbers = count()


def source(client: httpx.Client, format: Any, **body: Any) -> str:
    name = f"format{next(_numbers)}"
    client.put(f"/v1/sources/{name}", json={**BODY, "format": format, **body}).raise_for_status()
    query = {"id": f"{name}.q", "source": name, "where": "x > 0"}
    client.post("/v1/queries", json=query).raise_for_status()
    return name


def send(client: httpx.Client, name: str, body: bytes, media: str | None) -> httpx.Response:
    headers = {} if media is None else {"Content-Type": media}
    return client.post("/v1/events", params={"source": name, "wait": "true"}, content=body, headers=headers)


def why(response: httpx.Response) -> tuple[int, str, str]:
    return response.status_code, response.json()["field"], response.json()["reason"]


@pytest.mark.parametrize(
    ("format", "body", "medias"),
    [
        pytest.param(encoders.AVRO, IN_AVRO, AVRO, id="avro"),
        pytest.param(encoders.PROTOBUF, protobuf(EVENT), PROTOBUF, id="protobuf"),
        pytest.param(PROTOBUF_FRAMED, framed(9, protobuf(EVENT), SEEN_INDEX), PROTOBUF, id="protobuf_framed"),
    ],
)
def test_an_event_in_the_format_of_its_source(
    client: httpx.Client, format: Any, body: bytes, medias: tuple[str, ...]
) -> None:
    name = source(client, format)
    assert client.get(f"/v1/sources/{name}").json()["format"] == {**format, **_default(format)}
    for media in (*medias, f"{medias[0].upper()} ; v=1"):
        answer = send(client, name, body, media).json()
        assert answer["refused"] == 0
        assert answer["outputs"][0]["value"]["queries"] == [f"{name}.q"]
    stream = client.get("/v1/streams/v-17", params={"source": name}).json()
    assert stream["last"] == {"x": 1.0, "lat": 2.0, "kind": "tug"}
    letter = send(client, name, body[:-1], medias[0]).json()["outputs"][0]
    assert (letter["topic"], letter["value"]["reason"]) == ("dead_letter", "malformed")
    # JSON asks what events would match, whatever the format is.
    found = client.post("/v1/match", params={"source": name}, json=EVENT).json()
    assert found == {"matches": [[f"{name}.q"]]}


def _default(format: dict[str, Any]) -> dict[str, Any]:
    return {"registry": format.get("registry", False)} if format["type"] == "protobuf" else {}


def test_content_types_that_do_not_go_with_the_source(client: httpx.Client) -> None:
    unsupported = (415, "Content-Type", "unsupported_media_type")
    in_avro, in_protobuf = source(client, encoders.AVRO), source(client, encoders.PROTOBUF)
    in_json = source(client, "json")
    for name, taken in ((in_avro, AVRO), (in_protobuf, PROTOBUF)):
        for media in {*BINARY, None, "application/json", "application/octet-stream"} - {*taken}:
            assert why(send(client, name, IN_AVRO, media)) == unsupported
    for media in BINARY:
        assert why(send(client, in_json, b"{}", media)) == unsupported
        params = {"source": in_json}
        refused = client.post("/v1/match", params=params, content=b"{}", headers={"Content-Type": media})
        assert why(refused) == unsupported
    for media in ("application/json", "text/plain", "application/x-www-form-urlencoded", None):
        assert send(client, in_json, encoders.as_json(EVENT), media).json()["refused"] == 0


def test_bodies_that_are_no_message(service: Running, client: httpx.Client) -> None:
    name = source(client, encoders.AVRO)
    assert why(send(client, name, b"", AVRO[0])) == (422, "", "malformed")
    large = b"\0" * (service.settings.max_message_bytes + 1)
    assert why(send(client, name, large, AVRO[0])) == (413, "", "too_large")


def test_formats_that_are_refused(client: httpx.Client) -> None:
    def put(format: Any) -> tuple[int, str, str]:
        return why(client.put("/v1/sources/refused", json={**BODY, "format": format}))

    assert put(AVRO_FRAMED) == (422, "format.registry", "bad_value")
    assert put("xml") == (422, "format", "bad_value")
    assert put({"type": "avro", "schema": "string"}) == (422, "format.schema", "bad_value")
    assert put({**encoders.PROTOBUF, "message": "Nope"}) == (422, "format.message", "bad_value")


# ---- a registry


@pytest.fixture
def there() -> Iterator[FakeRegistry]:
    with schema_registry() as registry:
        yield registry


def test_the_registry_is_away_and_comes_back(there: FakeRegistry, tmp_path: Path) -> None:
    there.put(7, SCHEMA)
    there.mood = 503
    with running(tmp_path, schema_registry_url=there.url) as service:
        client = service.client
        name, other = source(client, AVRO_FRAMED), source(client, "json")
        refused = send(client, name, framed(7, IN_AVRO), AVRO[0])
        assert why(refused) == (503, "", "unavailable")
        assert refused.headers["Retry-After"]
        unready = client.get("/readyz")
        assert unready.status_code == 503
        assert "wait for schemas" in unready.json()["detail"]
        assert "127.0.0.1" not in unready.text, "no key is needed to read this"
        assert send(client, other, encoders.as_json(EVENT), None).json()["refused"] == 0
        assert client.get("/v1/queries").is_success
        there.mood = "well"
        eventually(lambda: client.get("/readyz").is_success, "the registry is back")
        # The first one had been taken all the same.
        after = send(client, name, framed(7, IN_AVRO), AVRO[0]).json()
        assert after["positions"][0]["offset"] == 1
        letters = client.get("/v1/topics/dead_letter").json()["records"]
        assert letters == []


def test_which_partition_a_message_belongs_to(there: FakeRegistry) -> None:
    there.put(7, SCHEMA)

    def key(format: Any, body: bytes, *, partitions: int = 4, registry: Any = None) -> Message:
        made = parse_source("s", {**BODY, "format": format})
        return message_of_binary(body, made, registry or NoRegistry(), partitions=partitions, max_bytes=1000)

    assert key(encoders.AVRO, IN_AVRO) == Message(b"v-17", IN_AVRO)
    assert key(encoders.PROTOBUF, protobuf(EVENT)).key == b"v-17"
    assert key(encoders.AVRO, b"\xff").key is None
    assert key(encoders.AVRO, avro({"kind": "a"})).key is None
    body = framed(7, IN_AVRO)
    assert key(AVRO_FRAMED, body, partitions=1) == Message(None, body, 0)
    with pytest.raises(SchemasUnavailable):
        key(AVRO_FRAMED, body)
    registry = Registry(Settings(schema_registry_url=there.url))
    assert key(AVRO_FRAMED, body, registry=registry) == Message(b"v-17", body)
    assert key(AVRO_FRAMED, framed(8, IN_AVRO), registry=registry).key is None
    registry.close()
    with pytest.raises(Refusal) as caught:
        key(encoders.AVRO, b"\0" * 1001)
    assert caught.value.reason is Reason.TOO_LARGE
