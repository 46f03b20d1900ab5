"""Requests made up from the OpenAPI document, fitting and not: only documented answers, and no 500.

The source and the query that the document's examples name are there, and half of the requests ask for them,
so that what is made up reaches more than the search for an id.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, assume, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from service.api.access import ROLES
from service.keys import Role
from tests.api.harness import Running, running
from tests.api.test_access import add_key

#: The server ends what has longer heads, as servers do, before anything of ours hears of it.
LONGEST_URL = 1 << 15
EXAMPLES = settings().max_examples // 5
KNOWN = {"name": "ais", "id": "harbour-7-fast", "topic": "borders"}
CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@schemathesis.serializer("application/x-ndjson", "text/csv", "application/vnd.apache.parquet")
def as_text(_: schemathesis.SerializationContext, value: Any) -> bytes:
    """What the document calls a text is sent as it is; what is made up not to fit, as JSON."""
    return value.encode(errors="replace") if isinstance(value, str) else json.dumps(value).encode()


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("fuzz")
    key = add_key(folder / "keys.toml", "fuzz", Role.ADMIN)
    limits = {"max_request_bytes": 200_000, "max_message_bytes": 100_000, "max_queries": 50}
    with running(folder, keys_file=str(folder / "keys.toml"), **limits) as service:
        client = service.with_key(key)
        paths = service.contract.document["paths"]
        for method, path in (("put", "/v1/sources/{name}"), ("put", "/v1/queries/{id}")):
            content = paths[path][method]["requestBody"]["content"]["application/json"]
            client.put(path.format(**KNOWN), json=content["example"]).raise_for_status()
        client.post("/v1/events?source=ais&wait=true", json={"stream_id": "harbour-7-fast", "sog": 11})
        yield service


@pytest.fixture(scope="module")
def api(fuzzed: Running) -> Any:
    return schemathesis.openapi.from_url(f"{fuzzed.url}/openapi.json")


@pytest.fixture(scope="module")
def session(fuzzed: Running) -> Iterator[requests.Session]:
    (key,) = (one for one in fuzzed._clients if one is not None)
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {key}"
        yield session


@pytest.mark.parametrize(("method", "path"), sorted(ROLES))
def test_every_answer_is_documented(api: Any, session: requests.Session, method: str, path: str) -> None:
    operation = api[path][method]
    fitting, not_fitting = (operation.as_strategy(generation_mode=mode) for mode in GenerationMode)

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(fitting | not_fitting)
    def ask(case: Any) -> None:
        for name, made_up in (case.path_parameters or {}).items():
            if len(str(made_up)) % 2:
                case.path_parameters[name] = KNOWN[name]
        made_up = requests.Request(**case.as_transport_kwargs()).prepare()
        assume(len(made_up.url or "") < LONGEST_URL)
        case.call_and_validate(session=session, checks=CHECKS)

    ask()


def test_the_service_is_as_well_as_before(fuzzed: Running) -> None:
    assert fuzzed.runtime.failure is None
    assert fuzzed.client.get("/readyz").status_code == 200
