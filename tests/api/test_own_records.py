"""Numbers of a tenant's records against a plain list of all that it was ever told, while older records go."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from service.api import own_records
from service.api.own_records import OwnRecords
from service.log.port import Commit, Output, Record
from service.log.sqlite import SqliteLog
from service.wire import owner
from tests.api.harness import TIMEOUT_S

TENANTS = ("default", "acme", "beta")


class Reads:
    """A log as the runtime hands it on; before each reading something may happen."""

    def __init__(self, log: SqliteLog) -> None:
        self.log = log
        self.meanwhile = lambda: None

    def read(self, topic: str, after: int, limit: int, most_bytes: float) -> tuple[list[Record], int]:
        self.meanwhile()
        return self.log.read(topic, after=after, limit=limit, most_bytes=most_bytes)

    def gone(self, topic: str) -> tuple[int, dict[str, int]]:
        begin, counts = self.log.gone(topic)
        return begin, dict(counts)


def read(own: OwnRecords, *asked: Any) -> tuple[list[Record], int]:
    return asyncio.run(own.read(*asked))


def opened(path: Path) -> SqliteLog:
    log = SqliteLog(path, owner_of=owner)
    log.open()
    return log


@pytest.mark.parametrize("seed", range(6))
def test_numbers_stay_the_same_through_restarts_and_when_older_records_go(tmp_path: Path, seed: int) -> None:
    rng, said, trimmed = Random(seed), [], 0
    log, own = opened(tmp_path / "log.db"), OwnRecords()
    for _ in range(150):
        act = rng.random()
        if act < 0.4:
            whose = [rng.choice(TENANTS) for _ in range(rng.randrange(4))]
            values = [json.dumps({"tenant": one, "n": len(said) + i}).encode() for i, one in enumerate(whose)]
            log.commit(Commit([Output("matches", None, value) for value in values], {}, {}))
            said += zip(whose, values, strict=True)
        elif act < 0.55:
            trimmed = max(trimmed, rng.randrange(len(said) + 1))
            log.trim("matches", trimmed)
        elif act < 0.65:
            log.close()
            log, own = opened(tmp_path / "log.db"), OwnRecords()
        else:
            tenant = rng.choice(TENANTS[1:])
            all_ = [(at, value) for at, (one, value) in enumerate(said) if one == tenant]
            kept = [(n, value) for n, (at, value) in enumerate(all_) if at >= trimmed]
            after, limit = rng.randrange(-4, len(all_) + 1), rng.randrange(1, 5)
            expected = kept[after:] if after < 0 else [one for one in kept if one[0] >= after]
            records, next_ = read(own, Reads(log), "matches", tenant, after, limit, math.inf)
            assert [(one.offset, one.value) for one in records] == expected[:limit]
            if expected:
                assert next_ == expected[:limit][-1][0] + 1
            else:
                assert next_ == (max(after, 0) if after >= len(all_) else len(all_))
    log.close()


def test_what_goes_while_it_is_read_shows_nobody_elses(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "log.db")) as log:
        values = [json.dumps({"tenant": one}).encode() for one in ("acme", "acme", "beta", "beta", "acme")]
        log.commit(Commit([Output("matches", None, value) for value in values], {}, {}))
        reads, own = Reads(log), OwnRecords()
        assert len(read(own, reads, "matches", "acme", 0, 9, math.inf)[0]) == 3
        calls = []

        def trim_at_the_second() -> None:
            calls.append(None)
            if len(calls) == 2:  # the first looks for what is new
                log.trim("matches", 2)

        reads.meanwhile = trim_at_the_second
        records, next_ = read(own, reads, "matches", "acme", 0, 9, math.inf)
        assert [(one.offset, one.value) for one in records] == [(2, values[4])] and next_ == 3
        assert [one.offset for one in read(own, reads, "matches", "acme", 0, 9, math.inf)[0]] == [2]


def test_a_page_ends_at_some_bytes_and_what_is_looked_at_in_one_go_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_records, "_BYTES_AT_ONCE", 100)
    with closing(opened(tmp_path / "log.db")) as log:
        whose = [TENANTS[1 + i % 2] for i in range(20)]
        values = [json.dumps({"tenant": one, "n": "x" * (i % 60)}).encode() for i, one in enumerate(whose)]
        log.commit(Commit([Output("matches", None, value) for value in values], {}, {}))
        expected = [value for one, value in zip(whose, values, strict=True) if one == "acme"]
        own, found, after = OwnRecords(), [], 0
        while (page := read(own, Reads(log), "matches", "acme", after, 9, 60))[0]:
            assert sum(len(one.value or b"") for one in page[0][:-1]) < 60
            assert [one.offset for one in page[0]] == list(range(after, page[1]))
            found += [one.value for one in page[0]]
            after = page[1]
        assert (found, after) == (expected, len(expected))


class Gate:
    """Lets nothing pass before it is open; counts who comes."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.here = threading.Semaphore(0)

    def __call__(self) -> None:
        self.here.release()
        assert self.open.wait(TIMEOUT_S)


@pytest.mark.parametrize("given_up", [False, True])
def test_a_look_at_a_long_topic_takes_one_thread_however_many_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given_up: bool
) -> None:
    """And the first asker may go away meanwhile."""
    monkeypatch.setattr(own_records, "_AT_ONCE", 10)

    async def ask(log: SqliteLog) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(3))
        own, reads, gate = OwnRecords(), Reads(log), Gate()
        reads.meanwhile = gate
        asking = [
            asyncio.create_task(own.read(reads, "matches", "acme", after, 9, math.inf)) for after in range(10)
        ]
        await asyncio.to_thread(gate.here.acquire)
        if given_up:
            asking.pop(0).cancel()
        try:
            for _ in range(20):
                assert await asyncio.wait_for(asyncio.to_thread(lambda: 7), TIMEOUT_S) == 7
        finally:
            gate.open.set()
        for after, (records, next_) in enumerate(await asyncio.gather(*asking), given_up):
            assert next_ == after + 9
            expected = [(number, values[2 * number]) for number in range(after, next_)]
            assert [(one.offset, one.value) for one in records] == expected

    values = [json.dumps({"tenant": TENANTS[1 + i % 2], "n": i}).encode() for i in range(100)]
    with closing(opened(tmp_path / "log.db")) as log:
        log.commit(Commit([Output("matches", None, value) for value in values], {}, {}))
        asyncio.run(ask(log))
