"""The OpenAPI document: complete, with examples that are true, and with every answer that can come."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest
from jsonschema import Draft202012Validator

from service.api.media import AVRO, PROTOBUF
from tests.api.harness import Running, running
from tests.unit.encoders import Field, descriptors, file_of


@pytest.fixture(scope="module")
def document(service: Running) -> dict[str, Any]:
    return service.contract.document


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def examples(content: dict[str, Any]) -> list[Any]:
    if "example" in content:
        return [content["example"]]
    return [one["value"] for one in content.get("examples", {}).values()]


#: (method, path) -> the answers that it may give besides 500, in the contract's words.
ANSWERS = {
    ("PUT", "/v1/sources/{name}"): {200, 201, 400, 408, 409, 413, 422, 503},
    ("GET", "/v1/sources/{name}"): {200, 404, 422, 503},
    ("GET", "/v1/sources/{name}/index"): {200, 404, 422, 503},
    ("GET", "/v1/sources"): {200, 422, 503},
    ("POST", "/v1/queries:bulk"): {200, 400, 408, 409, 413, 422, 503},
    ("GET", "/v1/queries:export"): {200, 422, 503},
    ("GET", "/v1/queries"): {200, 422, 503},
    ("POST", "/v1/queries"): {201, 400, 408, 409, 413, 422, 503},
    ("PUT", "/v1/queries/{id}"): {200, 201, 400, 408, 412, 413, 422, 503},
    ("PATCH", "/v1/queries/{id}"): {200, 400, 404, 408, 409, 412, 413, 422, 503},
    ("DELETE", "/v1/queries/{id}"): {204, 404, 412, 422, 503},
    ("GET", "/v1/queries/{id}"): {200, 304, 404, 422, 503},
    ("GET", "/v1/queries/{id}/streams"): {200, 404, 422, 503},
    ("GET", "/v1/queries/{id}/aggregates"): {200, 404, 409, 422, 503},
    ("GET", "/v1/queries:duplicates"): {200, 422, 503},
    ("GET", "/v1/queries:unmatched"): {200, 422, 503},
    ("PUT", "/v1/collections/{name}"): {200, 201, 400, 404, 408, 409, 412, 413, 415, 422, 503},
    ("GET", "/v1/collections/{name}"): {200, 304, 404, 422, 503},
    ("GET", "/v1/collections"): {200, 422, 503},
    ("DELETE", "/v1/collections/{name}"): {204, 404, 412, 422, 503},
    ("POST", "/v1/validate"): {200, 400, 408, 413, 422, 503},
    ("POST", "/v1/explain"): {200, 400, 404, 408, 409, 413, 422, 503},
    ("POST", "/v1/match"): {200, 400, 408, 413, 415, 422, 503},
    ("POST", "/v1/events"): {200, 202, 400, 408, 413, 415, 422, 503},
    ("GET", "/v1/streams/{id}/trace"): {200, 404, 409, 422, 503},
    ("GET", "/v1/streams/{id}/safe-region"): {200, 404, 422, 503},
    ("GET", "/v1/streams/{id}"): {200, 404, 422, 503},
    ("DELETE", "/v1/streams/{id}"): {202, 204, 404, 422, 503},
    ("GET", "/v1/live"): {200, 404, 422, 429, 503},
    ("GET", "/v1/history"): {200, 422, 503},
    ("GET", "/v1/topics/{topic}"): {200, 404, 422, 501, 503},
    ("GET", "/v1/schemas/{name}"): {200, 404, 422, 503},
    ("GET", "/healthz"): {200, 503},
    ("GET", "/readyz"): {200, 503},
    ("GET", "/metrics"): {200},
}


#: What needs no key; everything else may also answer that the key is missing, too weak or in too much use.
OPEN = {("GET", "/healthz"), ("GET", "/readyz")}


def test_every_operation_and_every_answer_is_there(document: dict[str, Any]) -> None:
    found = {(method, path): {int(s) for s in op["responses"]} for method, path, op in operations(document)}
    guarded = ANSWERS.keys() - OPEN
    assert found == {
        operation: answers | {500} | ({401, 403, 429} if operation in guarded else set())
        for operation, answers in ANSWERS.items()
    }


def test_every_operation_says_what_it_does(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        assert operation["summary"], (method, path)
        assert operation["tags"], (method, path)
        for parameter in operation.get("parameters", []):
            assert parameter["in"] == "path" or parameter.get("description"), (
                method,
                path,
                parameter["name"],
            )


def test_every_body_and_every_answer_has_an_example(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        bodies = [operation["requestBody"]] if method in ("PUT", "POST", "PATCH") else []
        for entry in [*bodies, *operation["responses"].values()]:
            for media, content in entry.get("content", {}).items():
                assert examples(content), (method, path, media)


def test_every_example_fits_its_schema(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        for entry in [operation.get("requestBody", {}), *operation["responses"].values()]:
            for media, content in entry.get("content", {}).items():
                if media.endswith("json") and media != "application/x-ndjson":
                    schema = {**content["schema"], "components": document["components"]}
                    for example in examples(content):
                        assert Draft202012Validator(schema).is_valid(example), (method, path, media, example)


def test_errors_are_problems_and_nothing_of_the_frameworks_is_left(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                assert list(response["content"]) == ["application/problem+json"], (method, path, status)
    assert not {"HTTPValidationError", "ValidationError"} & document["components"]["schemas"].keys()


PARQUET = "application/vnd.apache.parquet"
BINARY_SOURCES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "openapi-avro": (
        AVRO,
        {
            "type": "avro",
            "schema": {
                "type": "record",
                "name": "Seen",
                "fields": [
                    {"name": "stream_id", "type": "string"},
                    {"name": "sog", "type": ["null", "double"]},
                ],
            },
        },
    ),
    "openapi-protobuf": (
        PROTOBUF,
        {
            "type": "protobuf",
            "message": "fleet.Seen",
            "descriptors": descriptors(
                file_of({"Seen": [("stream_id", 1, Field.TYPE_STRING), ("sog", 2, Field.TYPE_DOUBLE)]})
            ),
        },
    ),
}
OF_A_SOURCE = ("/v1/events", "/v1/match", "/v1/collections/{name}")


def parquet(text: str) -> bytes:
    """A CSV as Parquet."""
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(io.BytesIO(text.encode())), out)
    return out.getvalue()


def test_the_examples_of_requests_are_accepted(document: dict[str, Any], client: httpx.Client) -> None:
    """In the order of a first session: the source, the query, everything else."""
    real = {"name": "ais", "id": "harbour-7-fast"}
    order = ["PUT /v1/sources/{name}", "PUT /v1/queries/{id}"]
    todo = sorted(
        (op for op in operations(document) if "requestBody" in op[2]),
        key=lambda op: order.index(f"{op[0]} {op[1]}") if f"{op[0]} {op[1]}" in order else len(order),
    )
    names: dict[str, str] = {}  # of the sources in the formats that have media of their own
    for name, (media, format) in BINARY_SOURCES.items():
        body = {"attributes": {"sog": "number"}, "nulls": "absent", "format": format}
        client.put(f"/v1/sources/{name}", json=body).raise_for_status()
        names |= dict.fromkeys(media, name)
    for method, path, operation in todo:
        if (method, path) == ("POST", "/v1/queries"):
            client.delete("/v1/queries/harbour-7-fast").raise_for_status()
        for media, content in operation["requestBody"]["content"].items():
            for example in examples(content):
                sent = {"content": example.encode()} if isinstance(example, str) else {"json": example}
                if media == PARQUET:  # no document can hold it: the table that stands for it
                    sent = {"content": parquet(operation["requestBody"]["content"]["text/csv"]["example"])}
                response = client.request(
                    method,
                    path.format(**real),
                    params={"source": names.get(media, "ais")} if path in OF_A_SOURCE else {},
                    headers={"Content-Type": media},
                    **sent,
                )
                assert response.is_success, (method, path, response.text)


def test_a_service_that_is_not_ready_says_so_everywhere(tmp_path: Path) -> None:
    with running(tmp_path, start=False) as service:
        for (method, path), answers in ANSWERS.items():
            if 503 in answers and path not in ("/healthz", "/v1/schemas/{name}"):  # they need no worker
                response = service.client.request(
                    method,
                    path.format(name="n", id="i", topic="matches"),
                    params={"source": "s"}
                    if path.startswith("/v1/streams/") or path in ("/v1/events", "/v1/match")
                    else {},
                )
                assert response.status_code == 503, (method, path, response.text)
        assert service.client.get("/healthz").status_code == 200
        assert "rangewatch_ready 0.0" in service.client.get("/metrics").text
