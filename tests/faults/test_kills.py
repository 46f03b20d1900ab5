"""Whatever dies, whenever it dies: consumers see what an uninterrupted run would have written.

``FAULTS_SECONDS`` is how long the random part goes on (20), ``FAULTS_SEED`` what it draws from.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import time
from pathlib import Path

import httpx
import pytest

from deploy.kafka.broker import Broker
from service.log.kafka_library import CONFLUENT_KAFKA, KAFKA_PYTHON
from tests.api.harness import eventually
from tests.faults.fleet import LOG_TIMEOUT_S, SESSION_S, WITHIN_S, Fuse, Worker
from tests.faults.world import World, world

pytestmark = [pytest.mark.kafka, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

BOTH = (KAFKA_PYTHON, CONFLUENT_KAFKA)
SECONDS = float(os.environ.get("FAULTS_SECONDS", "20"))
SEED = int(os.environ.get("FAULTS_SEED", time.time_ns() % 1_000_000))

#: Reached by a worker that joins, or by one that has events to process.
AT_WORK = (
    Fuse("when partitions are gained"),
    Fuse("before restoring"),
    Fuse("while restoring", 3),
    Fuse("after poll", 3),
    Fuse("after match", 2),
    Fuse("after match in a commit"),
    Fuse("while producing", 3),
    Fuse("while writing state", 4),
    Fuse("while writing a page", 2),
    Fuse("after produce", 3),
    Fuse("before commit", 4),
    Fuse("in commit", 3),
    Fuse("after commit", 3),
)
IN_A_BULK = (
    Fuse("before a bulk is written"),
    Fuse("after a bulk is written"),
    Fuse("after a bulk is applied"),
)
WHILE_CATCHING_UP = (Fuse("before catching up"), Fuse("after catching up"))

_numbers = itertools.count()


def prefix() -> str:
    return f"faults-{os.getpid()}-{next(_numbers)}."


def until_it_dies(one: World, victim: Worker) -> None:
    """Events and commands until the fuse of a worker has been reached."""
    deadline = time.monotonic() + WITHIN_S
    while victim.alive:
        one.send(40)
        one.command()
        assert time.monotonic() < deadline, f"{victim.fuse} has not been reached"
    assert victim.burnt, f"it has died of something else than {victim.fuse}"


def test_named_points(broker: Broker, tmp_path: Path) -> None:
    with world(tmp_path, broker.address, prefix(), SEED) as one:
        one.begin("calm")
        one.send(300)
        for fuse in AT_WORK:
            until_it_dies(one, one.fleet.start("victim", fuse))
        for fuse in IN_A_BULK:
            victim = one.fleet.start("victim", fuse)
            eventually(lambda victim=victim: victim.ready, "ready", within_s=WITHIN_S)
            one.send(40)
            with pytest.raises(httpx.HTTPError):
                one.bulk(30, by=victim)
            until_it_dies(one, victim)
        victim = one.fleet.start("victim", Fuse("when partitions are lost"))
        eventually(lambda: victim.ready, "ready", within_s=WITHIN_S)
        third = one.fleet.start("third")
        until_it_dies(one, victim)
        third.kill()
        one.judge()


def test_a_partition_that_missed_commands_is_told_of_them_once(broker: Broker, tmp_path: Path) -> None:
    with world(tmp_path, broker.address, prefix(), SEED) as one:
        one.begin("calm")
        one.send(300)
        for fuse in WHILE_CATCHING_UP:
            victim = one.fleet.start("victim", fuse)
            eventually(lambda victim=victim: victim.ready, "ready", within_s=WITHIN_S)
            one.send(100)
            one.fleet.workers["calm"].kill()  # until its session ends, its partitions hear of no command
            one.insist(lambda victim=victim: one.bulk(30, by=victim))
            until_it_dies(one, victim)
            one.start("calm")
        one.judge()


def test_a_worker_that_stood_still_writes_nothing_more(broker: Broker, tmp_path: Path) -> None:
    """A zombie: the group and, in the middle of a transaction, the broker have given it up meanwhile."""
    with world(tmp_path, broker.address, prefix(), SEED) as one:
        one.begin("calm")
        one.send(300)
        for point in ("after poll", "before commit"):
            zombie = one.fleet.start("zombie", Fuse(point, 3, "SIGSTOP"))
            eventually(lambda zombie=zombie: working(one, zombie), f"stopped {point}", within_s=WITHIN_S)
            one.catch_up()  # by the other one: the whole group has passed it over
            zombie.signal(signal.SIGCONT)
            eventually(lambda zombie=zombie: "starting afresh" in zombie.output.read_text(), "fenced")
            eventually(lambda zombie=zombie: zombie.ready, "at work again", within_s=WITHIN_S)
            one.send(100)
            zombie.kill()
        one.judge()


def working(one: World, worker: Worker) -> bool:
    one.send(20)
    return worker.burnt


@pytest.mark.parametrize("client", BOTH)
def test_a_transaction_that_takes_too_long_comes_to_nothing(
    broker: Broker, tmp_path: Path, client: str
) -> None:
    """The broker ends it, and the group has noticed nothing."""
    patient = ("--session-timeout-s", "60", "--log-timeout-s", "2")
    with world(tmp_path, broker.address, prefix(), SEED, *patient, clients=(client,)) as one:
        one.begin("first")
        one.fleet.workers["first"].stop()
        slow = one.fleet.start("slow", Fuse("before commit", 3, "SIGSTOP"))
        eventually(lambda: working(one, slow), "stopped in a transaction", within_s=WITHIN_S)
        # Waits for its end: any transaction has positions, not any has records of a topic.
        one.broker.positions(one.group)
        slow.signal(signal.SIGCONT)
        eventually(lambda: "starting afresh" in slow.output.read_text(), "fenced", within_s=WITHIN_S)
        one.send(100)
        one.judge()


def test_random_kills(broker: Broker, tmp_path: Path) -> None:
    """The workers of one group use either library, by turns."""
    print(f"FAULTS_SEED={SEED}")
    rng = random.Random(SEED)
    fuses = [*AT_WORK, *IN_A_BULK, *WHILE_CATCHING_UP, Fuse("when partitions are lost")]
    with world(tmp_path, broker.address, prefix(), SEED, clients=BOTH) as one:
        one.begin("a", "b")
        asleep: dict[Worker, float] = {}
        ends = time.monotonic() + SECONDS
        deaths = 0
        while time.monotonic() < ends or deaths < 3:
            for name in "ab":
                if not one.fleet.workers[name].alive:
                    deaths += 1
                    fuse = rng.choice(fuses)._replace(count=rng.randrange(1, 6))
                    one.fleet.start(name, fuse if rng.random() < 0.7 else None)
            one.send(rng.randrange(100))
            act = rng.random()
            worker = rng.choice(list(one.fleet.workers.values()))
            if act < 0.15:
                worker.kill()
            elif act < 0.2 and worker not in asleep:
                worker.signal(signal.SIGSTOP)
                asleep[worker] = time.monotonic() + rng.choice([0.5, 2 * SESSION_S, 2 * LOG_TIMEOUT_S])
            elif act < 0.35:
                with contextlib.suppress(httpx.HTTPError):
                    one.bulk(30, by=worker)
            else:
                one.command()
            for sleeper, until in list(asleep.items()):
                if time.monotonic() > until:
                    sleeper.signal(signal.SIGCONT)
                    del asleep[sleeper]
        for sleeper in asleep:
            sleeper.signal(signal.SIGCONT)
        for name in "ab":
            one.fleet.workers[name].kill()
        one.start("a", "b")
        print(f"{deaths} deaths, {one.sent} messages, {len(one.promises)} changes that were answered")
        one.judge()
