"""Two workers are asked to change the same things at once: what they have answered is what is in the log."""

from __future__ import annotations

import itertools
import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import pytest

from deploy.kafka.broker import Broker
from service.log.kafka_library import CONFLUENT_KAFKA, KAFKA_PYTHON
from tests.api.harness import TIMEOUT_S, eventually
from tests.faults.fleet import WITHIN_S, fleet
from tests.faults.history import Broker as Topics

pytestmark = [pytest.mark.kafka, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

CLIENTS = 4
#: How long clients go on with one thing.
SECONDS = 3.0
BODY = {"source": "s", "where": "x > 0"}

Said = tuple[int, httpx.Response]
"""Through which worker, and what it answered."""


class Two:
    """Two workers, one over each library, asked by several clients at once."""

    def __init__(self, urls: list[str], topics: Topics) -> None:
        self.clients = [httpx.Client(base_url=url, timeout=TIMEOUT_S) for url in urls]
        self._topics = topics

    def say(self, method: str, path: str, *, by: int | None = None, **how: Any) -> Said:
        number = random.randrange(len(self.clients)) if by is None else by
        return number, self.clients[number].request(method, path, **how)

    def made(self, path: str, body: dict[str, Any]) -> None:
        """Put, and known to both."""
        self.say("PUT", path, json=body)[1].raise_for_status()
        self.agree(path, lambda answer: answer.status_code == 200)

    def agree(self, path: str, holds: Callable[[httpx.Response], bool]) -> None:
        eventually(lambda: all(holds(one.get(path)) for one in self.clients), f"both have {path}")

    def together(self, *asks: Callable[[], Said]) -> list[Said]:
        """Several requests in the same moment."""
        gate = threading.Barrier(len(asks))

        def ask(one: Callable[[], Said]) -> Said:
            gate.wait(TIMEOUT_S)
            return one()

        with ThreadPoolExecutor(len(asks)) as pool:
            return list(pool.map(ask, asks))

    def for_a_while(self, one: Callable[[], Said | None]) -> list[Said]:
        """What clients hear that ask the same thing again and again."""
        until = time.monotonic() + SECONDS

        def ask(_: int) -> list[Said]:
            heard = []
            while time.monotonic() < until:
                said = one()
                if said is not None:
                    heard.append(said)
            return heard

        with ThreadPoolExecutor(CLIENTS) as pool:
            return list(itertools.chain.from_iterable(pool.map(ask, range(CLIENTS))))

    def entries(self, id: str) -> list[str]:
        """What the log says of a query, in order."""
        bodies = [json.loads(read.record.value or b"null") for read in self._topics.read("queries")]
        return [body["op"] for body in bodies if body.get("id") == id]

    def close(self) -> None:
        for client in self.clients:
            client.close()


@pytest.fixture(scope="module")
def two(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    prefix, folder = f"writers-{os.getpid()}.", tmp_path_factory.mktemp("writers")
    patient = ("--log-timeout-s", "30")  # a 503 would leave open whether a change holds
    with fleet(folder, broker.address, prefix, *patient, clients=(KAFKA_PYTHON, CONFLUENT_KAFKA)) as made:
        workers = [made.start(name) for name in ("one", "other")]
        for worker in workers:
            eventually(lambda worker=worker: worker.ready, f"{worker.name} is ready", within_s=WITHIN_S)
        two = Two([worker.url or "" for worker in workers], Topics(broker.address, prefix))
        two.made("/v1/sources/s", {"attributes": {"x": "number"}})
        try:
            yield two
        except BaseException:
            print(made.outputs())
            raise
        finally:
            two.close()


def statuses(said: list[Said]) -> Counter[int]:
    return Counter(answer.status_code for _, answer in said)


def test_no_change_is_lost_where_clients_say_what_they_have_read(two: Two) -> None:
    two.made("/v1/queries/counter", {**BODY, "tags": {"n": "0"}})

    def count() -> Said:
        read = two.say("GET", "/v1/queries/counter")[1]
        body = {**BODY, "tags": {"n": str(int(read.json()["tags"]["n"]) + 1)}}
        return two.say("PUT", "/v1/queries/counter", json=body, headers={"If-Match": read.headers["ETag"]})

    said: list[Said] = []

    def both() -> bool:
        said.extend(two.for_a_while(count))
        return {number for number, answer in said if answer.status_code == 200} == {0, 1}

    eventually(both, "both have written", within_s=WITHIN_S)
    assert statuses(said).keys() <= {200, 412}
    done = [number for number, answer in said if answer.status_code == 200]
    two.agree("/v1/queries/counter", lambda answer: answer.json()["tags"]["n"] == str(len(done)))
    print(f"{len(done)} of {len(said)} changes done, by worker: {Counter(done)}")


def test_an_id_is_given_once(two: Two) -> None:
    for number in range(8):
        body = {**BODY, "id": f"id-{number}"}
        asks = [partial(two.say, "POST", "/v1/queries", by=by, json=body) for by in (0, 1)]
        said = two.together(*asks)
        assert statuses(said) == {201: 1, 409: 1}
        assert two.entries(f"id-{number}") == ["query"]


def test_what_is_deleted_stays_so(two: Two) -> None:
    patched = 0
    for number in range(8):
        path = f"/v1/queries/gone-{number}"
        two.made(path, BODY)
        (_, deleted), (_, other) = two.together(
            partial(two.say, "DELETE", path, by=0),
            partial(two.say, "PATCH", path, by=1, json={"where": "x > 1"}),
        )
        assert deleted.status_code == 204 and other.status_code in (200, 404)
        patched += other.status_code == 200
        two.agree(path, lambda answer: answer.status_code == 404)
        changes = ["query"] if other.status_code == 200 else []
        assert two.entries(f"gone-{number}") == ["query", *changes, "delete"]
    print(f"{patched} of 8 were changed before")


def test_a_collection_is_what_the_last_to_be_answered_has_put(two: Two) -> None:
    csv = {"Content-Type": "text/csv"}
    path = "/v1/collections/c?source=s"
    numbers = itertools.count()
    put: dict[int, set[str]] = {}
    first = two.say("PUT", path, content="id,x.gt\na,0\n", headers=csv)[1].raise_for_status()
    put[first.json()["active_from"]["command"]] = {"c:a"}

    def replace() -> Said | None:
        read = two.say("GET", "/v1/collections/c")[1]
        if read.status_code == 404:  # this one has not heard of it yet
            return None
        number = next(numbers)
        ids = {f"m{number % 7}", f"m{number % 5}", f"own{number}"}
        body = "id,x.gt\n" + "".join(f"{id},{number}\n" for id in sorted(ids))
        said = two.say("PUT", path, content=body, headers={**csv, "If-Match": read.headers["ETag"]})
        if said[1].status_code == 200:
            put[said[1].json()["active_from"]["command"]] = {f"c:{id}" for id in ids}
        return said

    said: list[Said] = []

    def both() -> bool:
        said.extend(two.for_a_while(replace))
        return {number for number, answer in said if answer.status_code == 200} == {0, 1}

    eventually(both, "both have written", within_s=WITHIN_S)
    assert statuses(said).keys() <= {200, 412}
    assert len(put) == 1 + statuses(said)[200], "each at a place of its own in the log"
    last = put[max(put)]

    def members(answer: httpx.Response) -> set[str]:
        return {one["id"] for one in answer.json()["queries"] if one["id"].startswith("c:")}

    two.agree("/v1/queries?limit=1000", lambda answer: members(answer) == last)
    print(f"{len(put) - 1} of {len(said)} changes done")
