from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import httpx
import pytest

from tests.api.harness import Running, running

ATTRIBUTES = {"x": "number", "y": "number", "kind": "category"}


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One service for all tests that keep to names of their own."""
    with running(tmp_path_factory.mktemp("api")) as service:
        yield service


@pytest.fixture
def client(service: Running) -> httpx.Client:
    return service.client


_numbers = count()


class OwnSource:
    """A source that only this test uses, and ids that only it uses."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.name = f"s{next(_numbers)}"
        client.put(f"/v1/sources/{self.name}", json={"attributes": ATTRIBUTES}).raise_for_status()

    def id(self, name: str) -> str:
        return f"{self.name}.{name}"

    def body(self, name: str, where: Any = "x > 0", **fields: Any) -> dict[str, Any]:
        return {"id": self.id(name), "source": self.name, "where": where, **fields}

    def register(self, name: str, where: Any = "x > 0", **fields: Any) -> dict[str, Any]:
        response = self.client.post("/v1/queries", json=self.body(name, where, **fields))
        assert response.status_code == 201, response.text
        return response.json()

    def send(self, *events: dict[str, Any]) -> dict[str, Any]:
        response = self.client.post(
            "/v1/events", params={"source": self.name, "wait": "true"}, json=list(events)
        )
        assert response.status_code == 200, response.text
        return response.json()


@pytest.fixture
def source(client: httpx.Client) -> OwnSource:
    return OwnSource(client)
