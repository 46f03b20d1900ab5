from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from tests.api.conftest import ATTRIBUTES
from tests.api.harness import Running, running

TOPICS = ("matches", "borders", "joins", "aggregates", "dead_letter")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A service whose topics hold a little of everything."""
    with running(tmp_path_factory.mktemp("outputs"), max_ids_per_record=2) as service:
        client = service.client
        client.put("/v1/sources/s", json={"attributes": ATTRIBUTES})
        for name in "abcde":
            body = {
                "id": name,
                "source": "s",
                "where": "x > 0",
                "select": ["x", "kind"] if name == "e" else [],
            }
            client.post("/v1/queries", json=body).raise_for_status()
        events = [
            {"stream_id": "v", "ts": 10, "x": 1, "kind": "tug"},
            {"stream_id": "v", "ts": 5, "x": 1},
            {"stream_id": "v", "ts": 11, "x": "bad"},
            {"x": 1},
            {"stream_id": "v", "ts": 12, "x": -1},
            {"stream_id": "w", "x": 3},
        ]
        client.post("/v1/events?source=s&wait=true", json=events).raise_for_status()
        client.post("/v1/events?source=s&wait=true", content=b'{"stream_id": "\xff"}').raise_for_status()
        client.patch("/v1/queries/a", json={"enabled": False}).raise_for_status()
        client.delete("/v1/streams/w?source=s").raise_for_status()
        yield service


def records(client: httpx.Client, topic: str, **params: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"/v1/topics/{topic}", params=params).json()["records"]
    return found


@pytest.mark.parametrize("topic", TOPICS)
def test_a_schema_is_a_schema_and_its_example_fits(client: httpx.Client, topic: str) -> None:
    schema = client.get(f"/v1/schemas/{topic}").json()
    Draft202012Validator.check_schema(schema)
    for example in schema["examples"]:
        Draft202012Validator(schema).validate(example)


@pytest.mark.parametrize("topic", ["matches", "borders", "dead_letter"])
def test_every_record_fits_its_schema(written: Running, topic: str) -> None:
    validator = Draft202012Validator(written.client.get(f"/v1/schemas/{topic}").json())
    found = records(written.client, topic)
    assert len(found) >= 3
    for record in found:
        validator.validate(record["value"])


def test_the_schemas_refuse_what_is_no_record(client: httpx.Client) -> None:
    for topic in TOPICS:
        schema = client.get(f"/v1/schemas/{topic}").json()
        example = schema["examples"][0]
        for broken in (
            {**example, "v": 2},
            {**example, "extra": 1},
            {k: v for k, v in example.items() if k != "v"},
        ):
            assert not Draft202012Validator(schema).is_valid(broken)


def test_a_topic_is_read_page_by_page(written: Running) -> None:
    whole = records(written.client, "borders")
    assert [record["offset"] for record in whole] == list(range(len(whole)))
    paged: list[dict[str, Any]] = []
    after = 0
    while True:
        page = written.client.get("/v1/topics/borders", params={"after": after, "limit": 2}).json()
        if not page["records"]:
            break
        paged += page["records"]
        after = page["next"]
    assert paged == whole
    assert after == len(whole)


def test_a_page_ends_at_the_bytes_of_an_answer(tmp_path: Path) -> None:
    with running(tmp_path, max_answer_bytes=3_000) as service:
        client = service.client
        client.put("/v1/sources/s", json={"attributes": ATTRIBUTES})
        for i in range(10):
            query = {"id": f"{i}" * 100, "source": "s", "where": "x > 0", "on": ["match"]}
            client.post("/v1/queries", json=query).raise_for_status()
        events = [{"stream_id": f"v{i}", "x": 1} for i in range(12)]
        client.post("/v1/events?source=s&wait=true", json=events).raise_for_status()
        lengths, after, streams = [], 0, []
        while True:
            answer = client.get("/v1/topics/matches", params={"after": after})
            page = answer.json()
            streams += [record["value"]["stream_id"] for record in page["records"]]
            lengths.append(len(answer.content))
            if page["next"] == after:
                break
            after = page["next"]
    assert streams == [event["stream_id"] for event in events]
    assert max(lengths) < 3_000 + 2 * 1_300, "and one record, and keys and offsets"
    assert len(lengths) > 4


@pytest.mark.parametrize("back", [1, 2, 3, 1000])
def test_a_negative_start_counts_from_the_end(written: Running, back: int) -> None:
    assert records(written.client, "borders", after=-back) == records(written.client, "borders")[-back:]
    assert records(written.client, "joins", after=-back) == []


def test_unknown_topics_and_bad_pages_are_named(client: httpx.Client) -> None:
    for path in (
        "/v1/topics/queries",
        "/v1/topics/state",
        "/v1/topics/..",
        "/v1/schemas/state",
        "/v1/schemas/x",
    ):
        assert client.get(path).status_code == 404
    for params in ({"after": "x"}, {"limit": 0}, {"limit": 10**6}, {"offset": 5}, {"after": 10**30}):
        assert client.get("/v1/topics/borders", params=params).status_code == 422


def test_the_schemas_are_files_of_the_package() -> None:
    folder = Path(__file__).parents[2] / "service" / "schemas"
    assert {file.stem for file in folder.glob("*.json")} == set(TOPICS)
    for file in folder.glob("*.json"):
        assert json.loads(file.read_text())["$id"] == f"urn:rangewatch:{file.stem}:v1"
