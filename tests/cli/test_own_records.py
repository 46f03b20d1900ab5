"""A tenant on a service whose file drops old records, as a whole process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from service.keys import Role
from tests.api.harness import eventually
from tests.api.test_access import add_key
from tests.cli.conftest import Served, serving


def test_what_goes_moves_no_number_and_shows_nobody_elses_records(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    tenants = {"default": Role.ADMIN, "acme": Role.WRITE, "beta": Role.WRITE}
    headers = {
        tenant: {"Authorization": f"Bearer {add_key(keys, tenant, role, tenant=tenant)}"}
        for tenant, role in tenants.items()
    }

    def client(service: Served, tenant: str) -> httpx.Client:
        return httpx.Client(base_url=service.url, headers=headers[tenant], timeout=30)

    def send(service: Served, x: int) -> None:
        event = {"stream_id": "v", "x": x}
        client(service, "default").post("/v1/events?source=s&wait=true", json=event).raise_for_status()

    def page(service: Served, after: int) -> dict[str, Any]:
        answer = client(service, "acme").get(f"/v1/topics/matches?after={after}&limit=2")
        found: dict[str, Any] = answer.raise_for_status().json()
        return found

    arguments = ("--keys-file", keys, "--keep-records-s", "1")
    with serving(tmp_path, *arguments) as service:
        client(service, "default").put("/v1/sources/s", json={"attributes": {"x": "number"}})
        for tenant, where in (("acme", "x < 10"), ("beta", "x >= 10")):
            body = {"source": "s", "where": where, "on": ["match"]}
            client(service, tenant).put(f"/v1/queries/of-{tenant}", json=body).raise_for_status()
        for x in (1, 2, 3):
            send(service, x)
        assert page(service, 0)["next"] == 2 and page(service, 2)["next"] == 3

        def nothing_of_acme_is_left() -> bool:
            send(service, 50)
            return page(service, 0) == {"records": [], "next": 3}

        eventually(nothing_of_acme_is_left, "older records go", within_s=30)
        send(service, 4)
        assert [one["offset"] for one in page(service, 3)["records"]] == [3]
        service.stop()
    with serving(tmp_path, *arguments) as service:
        send(service, 5)
        assert [one["offset"] for one in page(service, 4)["records"]] == [4], "also after a restart"
