"""Who is let in: keys, roles, the rate of a name, and a service without keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from service.api.access import ROLES, is_loopback
from service.api.app import create_app
from service.keys import KeysError, Role, edit, new_key, with_key, without_key
from service.log.topics import OUTPUTS
from service.metrics import Metrics
from tests.api.harness import Running, running

SOURCE = {"attributes": {"x": "number"}}
QUERY = {"source": "s", "where": "x > 0"}


class Guarded(NamedTuple):
    service: Running
    file: Path
    keys: dict[str, str]

    def client(self, name: str) -> httpx.Client:
        return self.service.with_key(self.keys[name])


def add_key(file: Path, name: str, role: Role, *, days: int | None = None, **fields: Any) -> str:
    now = datetime.now(UTC)
    expires = None if days is None else now + timedelta(days=days)
    text, key = new_key(name, role, now=now, expires=expires, **fields)
    edit(file, lambda document: with_key(document, key))
    return text


def keys_for_all_roles(file: Path) -> dict[str, str]:
    keys = {role: add_key(file, f"the-{role}", role) for role in Role}
    return {**keys, "expired": add_key(file, "past", Role.ADMIN, days=-1)}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    file = folder / "keys.toml"
    keys = keys_for_all_roles(file)
    with running(folder, keys_file=str(file)) as service:
        guarded = Guarded(service, file, keys)
        guarded.client("admin").put("/v1/sources/s", json=SOURCE).raise_for_status()
        yield guarded


# ---- roles


def documented(service: Running) -> set[tuple[str, str]]:
    paths = service.contract.document["paths"]
    return {(method.upper(), path) for path, methods in paths.items() for method in methods}


def test_every_operation_has_a_role(guarded: Guarded) -> None:
    assert documented(guarded.service) == ROLES.keys()


@pytest.mark.parametrize("operation", sorted(ROLES))
def test_a_route_without_a_role_keeps_the_application_from_being_made(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, operation: tuple[str, str]
) -> None:
    monkeypatch.delitem(ROLES, operation)
    with pytest.raises(ValueError, match=re.escape(" ".join(operation))):
        create_app(guarded.service.runtime, guarded.service.settings, Metrics())


@pytest.mark.parametrize(("method", "path"), sorted(ROLES))
def test_an_operation_is_for_its_role_and_those_above(guarded: Guarded, method: str, path: str) -> None:
    needed = ROLES[method, path]
    url = path.format(name="s", id="none", topic="matches")
    allowed = {}
    for who in ("nobody", "expired", *Role):
        client = guarded.service.with_key(None) if who == "nobody" else guarded.client(who)
        # What is sent is refused by whoever would act on it: nothing changes.
        answer = client.request(method, url, content=b"{" if method != "GET" else None)
        allowed[who] = answer.status_code not in (401, 403)
        if answer.status_code == 403:
            assert (answer.json()["needs"], answer.json()["has"]) == (needed, who)
            assert f'scope="{needed}"' in answer.headers["www-authenticate"]
        if answer.status_code == 401:
            assert answer.headers["www-authenticate"].startswith('Bearer realm="rangewatch"')
    assert allowed == {
        "nobody": needed is None,
        "expired": needed is None,
        **{role: needed is None or role.covers(needed) for role in Role},
    }


def test_the_document_says_which_operations_take_a_key(guarded: Guarded) -> None:
    document = guarded.service.contract.document
    scheme = document["components"]["securitySchemes"]["key"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    for (method, path), role in ROLES.items():
        operation = document["paths"][path][method.lower()]
        assert operation["security"] == ([] if role is None else [{"key": []}])
        assert operation.get("x-role") == role


@pytest.mark.parametrize("topic", OUTPUTS)
def test_dead_letters_are_for_admins(guarded: Guarded, topic: str) -> None:
    answers = {role: guarded.client(role).get(f"/v1/topics/{topic}").status_code for role in Role}
    weak = 403 if topic == "dead_letter" else 200
    assert answers == {"read": weak, "write": weak, "admin": 200}


def test_health_needs_no_key_and_metrics_does_by_a_setting(guarded: Guarded, tmp_path: Path) -> None:
    strange = guarded.service.with_key("rw_nonsense")
    assert strange.get("/healthz").status_code == 200
    assert strange.get("/readyz").status_code == 200
    assert strange.get("/metrics").status_code == 401
    with running(tmp_path, start=False, keys_file=str(guarded.file), open_metrics=True) as service:
        assert service.client.get("/metrics").status_code == 200
        assert service.client.get("/v1/queries").status_code == 401


# ---- keys


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Basic {key}"},
        {"Authorization": "{key}"},
        {"Authorization": "Bearer {key}x"},
        {"Authorization": "Bearer {key}, Bearer {key}"},
        {"Authorization": "Bearer " + "x" * 10_000},
        {"Authorization": b"Bearer \xff\xfe"},
        {"X-Api-Key": "{key}"},
        {"Cookie": "Authorization=Bearer {key}"},
    ],
)
def test_what_is_no_key_is_a_401_and_counted(guarded: Guarded, header: dict[str, Any]) -> None:
    def refused() -> float:
        text = guarded.client("read").get("/metrics").text
        found = [line for line in text.splitlines() if 'requests_refused_total{reason="unauth' in line]
        return float(found[0].rpartition(" ")[2]) if found else 0.0

    before = refused()
    sent = {
        name: value if isinstance(value, bytes) else value.format(key=guarded.keys["admin"]).encode()
        for name, value in header.items()
    }
    answer = guarded.service.client.get("/v1/queries", headers=sent)
    assert (answer.status_code, answer.json()["reason"]) == (401, "unauthenticated")
    assert guarded.keys["admin"] not in answer.text
    assert refused() == before + 1


def test_the_scheme_may_be_written_in_any_case(guarded: Guarded) -> None:
    key = guarded.keys["read"]
    answer = guarded.service.client.get("/v1/queries", headers={"Authorization": f"bearer  {key}"})
    assert answer.status_code == 200


def test_keys_come_and_go_without_a_restart(guarded: Guarded) -> None:
    fresh = add_key(guarded.file, "rotated", Role.READ)
    client = guarded.service.with_key(fresh)
    assert client.get("/v1/queries").status_code == 200
    second = guarded.service.with_key(add_key(guarded.file, "rotated", Role.READ))
    edit(guarded.file, lambda document: without_key(document, fresh.split("_")[1]))
    assert client.get("/v1/queries").status_code == 401
    assert second.get("/v1/queries").status_code == 200


def test_the_history_has_the_keys_name_whatever_a_client_says_of_itself(guarded: Guarded) -> None:
    writer = guarded.client("write")
    writer.put("/v1/queries/mine", json=QUERY, headers={"X-Actor": "somebody-else"}).raise_for_status()
    writer.delete("/v1/queries/mine", headers={"X-Actor": "x" * 300}).raise_for_status()
    entries = writer.get("/v1/history", params={"query": "mine"}).json()["entries"]
    assert [entry["by"] for entry in entries] == ["the-write", "the-write"]


def test_a_large_body_without_a_key_gets_its_401(guarded: Guarded) -> None:
    body = b"x" * (8 << 20)
    for path in ("/v1/queries:bulk", "/v1/events?source=s"):
        assert guarded.service.client.post(path, content=body).status_code == 401
    assert guarded.client("read").get("/v1/queries").status_code == 200


def test_no_application_is_made_with_a_file_of_keys_that_cannot_be_read(
    guarded: Guarded, tmp_path: Path
) -> None:
    service = guarded.service
    settings = service.settings.model_copy(update={"keys_file": str(tmp_path / "nowhere.toml")})
    with pytest.raises(KeysError, match=r"nowhere\.toml"):
        create_app(service.runtime, settings, Metrics())


# ---- rates


def test_more_requests_than_a_name_may_make_are_a_429_that_says_when(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    keys = [add_key(file, name, Role.READ) for name in ("ana", "ana", "bob")]
    limits = {"max_requests_per_s": 0.001, "max_requests_burst": 3}
    with running(tmp_path, keys_file=str(file), **limits) as service:
        ana, ana_too, bob = map(service.with_key, keys)
        assert ana.get("/v1/queries").status_code == 200
        assert ana.post("/v1/queries", json=QUERY).status_code == 403, "takes a turn as well"
        assert [ana_too.get("/v1/queries").status_code for _ in range(2)] == [200, 429]
        refused = ana.get("/v1/queries")
        assert (refused.status_code, refused.json()["reason"]) == (429, "quota")
        assert (refused.json()["limit"], refused.json()["allowed"]) == ("max_requests_per_s", 0.001)
        assert 900 < int(refused.headers["retry-after"]) <= 1_000
        assert bob.get("/v1/queries").status_code == 200
        assert all(ana.get("/healthz").status_code == 200 for _ in range(5))


def test_more_bytes_than_a_name_may_send_are_a_429_that_says_when(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    keys = [add_key(file, name, Role.WRITE) for name in ("ana", "ana", "bob")]
    with running(tmp_path, keys_file=str(file), max_bytes_per_s=1_000) as service:
        ana, ana_too, bob = map(service.with_key, keys)
        assert ana.post("/v1/validate", content=b" " * 1_000_000).status_code == 422
        for refused in (ana_too.post("/v1/validate", json=QUERY), ana.get("/v1/queries")):
            assert (refused.status_code, refused.json()["reason"]) == (429, "quota")
            assert (refused.json()["limit"], refused.json()["allowed"]) == ("max_bytes_per_s", 1_000)
            assert 900 < int(refused.headers["retry-after"]) <= 1_000
        assert bob.get("/v1/queries").status_code == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [("/v1/queries", 403), ("/v1/validate?what=1", 422), ("/v1/match", 422)],
)
def test_bytes_that_are_refused_count_too(tmp_path: Path, path: str, status: int) -> None:
    file = tmp_path / "keys.toml"
    key = add_key(file, "ana", Role.READ)
    with running(tmp_path, keys_file=str(file), max_bytes_per_s=1_000) as service:
        ana = service.with_key(key)
        for answer, owed_s in ((status, 0), (429, 1_000), (429, 2_000)):
            refused = ana.post(path, content=b" " * 1_000_000)
            assert refused.status_code == answer
            assert owed_s * 0.9 <= int(refused.headers.get("retry-after", 0)) <= owed_s


def test_without_keys_all_share_one_rate(tmp_path: Path) -> None:
    with running(tmp_path, max_requests_per_s=0.001, max_requests_burst=2) as service:
        assert [service.client.get("/v1/queries").status_code for _ in range(3)] == [200, 200, 429]


# ---- without keys


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({}, None),
        ({"Host": "localhost"}, None),
        ({"Host": "LOCALHOST:9"}, None),
        ({"Host": "[::1]:9"}, None),
        ({"Host": "[::1]"}, None),
        ({"Host": "evil.example"}, "Host"),
        ({"Host": "127.0.0.1.evil.example:8080"}, "Host"),
        ({"Host": "localhost.evil.example"}, "Host"),
        ({"Host": "10.0.0.1"}, "Host"),
        ({"Host": "127.0.0.1:9", "Origin": "http://127.0.0.1:9"}, None),
        ({"Host": "127.0.0.1:9", "Origin": "http://127.0.0.1:10"}, "Origin"),
        ({"Host": "127.0.0.1:9", "Origin": "https://evil.example"}, "Origin"),
        ({"Host": "127.0.0.1:9", "Origin": "http://127.0.0.1:9.evil.example"}, "Origin"),
        ({"Host": "127.0.0.1", "Origin": "http://127.0.0.1.evil.example"}, "Origin"),
        ({"Host": "127.0.0.1:9", "Origin": "null"}, "Origin"),
        (
            {
                "Host": "127.0.0.1:9",
                "Origin": "http://[",
            },
            "Origin",
        ),
    ],
)
def test_without_keys_pages_of_other_sites_are_kept_off(
    service: Running, headers: dict[str, str], field: str | None
) -> None:
    answer = service.client.post("/v1/validate", content=b"{}", headers=headers)
    if field is None:
        assert answer.status_code == 422
    else:
        assert (answer.status_code, answer.json()["field"]) == (403, field)
        assert "allow_open" in answer.json()["detail"]


def test_allow_open_lets_every_site_in(tmp_path: Path) -> None:
    with running(tmp_path, allow_open=True) as service:
        headers = {"Host": "matcher.example", "Origin": "https://dashboard.example"}
        assert service.client.get("/v1/queries", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("host", "is_this_machine"),
    [
        *(("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("LocalHost", True)),
        *(("0.0.0.0", False), ("::", False), ("", False), ("10.0.0.1", False), ("localhost.", False)),
        *(("example.org", False), ("127.0.0.1.example.org", False), ("2130706433", False), ("127.1", False)),
    ],
)
def test_what_counts_as_this_machine(host: str, is_this_machine: bool) -> None:
    assert is_loopback(host) is is_this_machine
