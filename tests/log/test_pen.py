"""Several workers on one command log: who may append, who is told to judge again, and what is left behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaProducer
from kafka import errors as kafka_errors

from deploy.kafka.broker import Broker, free_ports, start
from service.log.kafka import KafkaLog
from service.log.kafka_library import CONFLUENT_KAFKA, KAFKA_PYTHON
from service.log.port import Commit, LogError, LogMoved, LogUnusable, Message, Output, TopicPartition
from tests.log.sites import KafkaSite, eventually

pytestmark = pytest.mark.kafka

BOTH = (KAFKA_PYTHON, CONFLUENT_KAFKA)
COMMANDS = TopicPartition("queries", 0)
#: How long another's open transaction is waited for.
TIMEOUT_S = 3.0


@pytest.fixture(params=BOTH)
def client(request: pytest.FixtureRequest) -> str:
    """The library of the first worker."""
    name: str = request.param
    return name


@pytest.fixture
def site(broker: Broker, client: str) -> KafkaSite:
    return KafkaSite(broker.address, client=client, timeout_s=TIMEOUT_S)


@pytest.fixture
def make(site: KafkaSite) -> Iterator[Callable[[str, str], KafkaLog]]:
    """Opens a log for a worker, over a library; all are closed at the end."""
    made: list[KafkaLog] = []

    def one(worker: str, client: str) -> KafkaLog:
        site.client = client
        made.append(site.log(worker))
        made[-1].open()
        return made[-1]

    yield one
    for log in made:
        log.close()


@pytest.fixture
def first(make: Callable[[str, str], KafkaLog], client: str) -> KafkaLog:
    return make("first", client)


@pytest.fixture(params=BOTH)
def second(request: pytest.FixtureRequest, make: Callable[[str, str], KafkaLog]) -> KafkaLog:
    return make("second", request.param)


@pytest.fixture
def elsewhere(site: KafkaSite, first: KafkaLog) -> Iterator[KafkaProducer]:
    """A worker of another process, which has begun to write commands."""
    del first  # has made the topics
    topic = site.prefix + "queries"
    producer = KafkaProducer(bootstrap_servers=site.bootstrap, transactional_id=topic, retry_backoff_ms=5)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"elsewhere", b"q", partition=0)
    producer.flush()
    yield producer
    producer.close(timeout=1)


def append(log: KafkaLog, value: bytes) -> None:
    """One command after all there are, as soon as it is let."""

    def done() -> bool:
        try:
            log.append_commands([Message(b"q", value)], after=log.end_of_commands())
        except LogMoved:
            return False
        return True

    eventually(done, f"{value!r} is written")


def written(log: KafkaLog) -> list[bytes | None]:
    """All commands, those too whose commit is not visible yet."""
    end = log._cluster.ends([COMMANDS], committed=False)[COMMANDS]
    return [record.value for record in log.commands(0, end)]


def test_workers_hand_the_pen_over(first: KafkaLog, second: KafkaLog) -> None:
    for number in range(6):
        append((first, second)[number % 2], b"%d" % number)
    assert written(first) == written(second) == [b"%d" % number for number in range(6)]


def test_a_pen_that_changes_hands_leaves_nothing_behind(
    make: Callable[[str, str], KafkaLog], client: str
) -> None:
    """Neither the threads nor the sockets of producers that were fenced."""
    logs = make("one", client), make("other", client)

    def hand_over(times: int) -> tuple[int, int]:
        for number in range(times):
            append(logs[number % 2], b"%d" % number)
        return len(list(Path("/proc/self/task").iterdir())), len(list(Path("/proc/self/fd").iterdir()))

    threads, files = hand_over(6)
    eventually(lambda: hand_over(2)[0] <= threads + 6, "producers that were fenced have ended")
    for _ in range(8):
        hand_over(2)
    eventually(lambda: hand_over(0)[0] <= threads + 6, "their threads have ended")
    assert hand_over(0)[1] <= files + 12


def test_who_may_not_have_the_pen_is_told(tmp_path: Path, client: str) -> None:
    """Not that somebody else is writing, for ever."""
    rights = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:nobody",
        "early.start.listeners": "CONTROLLER",
    }
    broker = start(*free_ports(2), tmp_path / "node", rights)
    try:
        site = KafkaSite(broker.address, client=client, timeout_s=TIMEOUT_S)
        deny = AclBinding(
            ResourceType.TRANSACTIONAL_ID,
            f"{site.prefix}queries",
            ResourcePatternType.LITERAL,
            *("User:ANONYMOUS", "*", AclOperation.WRITE, AclPermissionType.DENY),
        )
        log = site.log("first")
        log.open()
        admin = AdminClient({"bootstrap.servers": broker.address})
        for done in admin.create_acls([deny]).values():
            done.result()

        def refused() -> bool:
            with pytest.raises(LogError) as raised:
                log.append_commands([Message(b"q", b"v")], after=log.end_of_commands())
            return isinstance(raised.value, LogUnusable)

        eventually(refused, "the right is gone")
        assert refused(), "and it is said again"
        log.close()
    finally:
        broker.stop()


def test_a_worker_that_writes_alone_looks_once(first: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    append(first, b"0")
    asked = []
    monkeypatch.setattr(first._cluster, "ends", lambda *_, **__: asked.append(1))
    end = first._pen.end
    for number in range(1, 5):
        (offset,) = first.append_commands([Message(b"q", b"%d" % number)], after=end)
        end = offset + 1
    assert not asked
    monkeypatch.undo()
    assert written(first) == [b"%d" % number for number in range(5)]


def test_who_has_not_seen_what_another_wrote_writes_nothing(first: KafkaLog, second: KafkaLog) -> None:
    append(first, b"1")
    seen = first.end_of_commands()
    append(second, b"2")
    for _ in ("fenced while it writes", "refused since it has taken over"):
        with pytest.raises(LogMoved):
            first.append_commands([Message(b"q", b"late")], after=seen)
    append(first, b"3")
    assert written(second) == [b"1", b"2", b"3"]
    first.commit(Commit([Output("matches", b"k", b"v")], {}, {}))  # the rest of the log is as it was


def test_who_is_passed_over_while_it_writes_leaves_nothing(first: KafkaLog, second: KafkaLog) -> None:
    """The other one finds it open for longer than the log may take to answer, or has not seen it at all."""

    def slow() -> Iterator[Message]:
        yield Message(b"a", b"slow")
        append(second, b"fast")
        yield Message(b"b", b"slow")

    with pytest.raises(LogMoved):
        first.append_commands(slow(), after=first.end_of_commands())
    append(first, b"again")
    assert written(second) == [b"fast", b"again"]


def test_what_another_has_begun_is_waited_for(first: KafkaLog, elsewhere: KafkaProducer) -> None:
    for _ in range(3):
        with pytest.raises(LogMoved):
            first.append_commands([Message(b"q", b"mine")], after=first.end_of_commands())
    elsewhere.commit_transaction()
    append(first, b"mine")
    assert written(first) == [b"elsewhere", b"mine"]


def test_who_goes_on_writing_is_waited_for_however_long_it_takes(first: KafkaLog, second: KafkaLog) -> None:
    """Longer than the log may take to answer, and than a transaction of events may last."""

    transactions: Any = first._pen._transactions

    def long() -> Iterator[Message]:
        begun = time.monotonic()
        while time.monotonic() - begun < 1.7 * TIMEOUT_S:
            yield from (Message(b"q", bytes(1 << 15)) for _ in range(20))
            transactions._producer.flush()  # as a batch that is full is
            with pytest.raises(LogMoved):
                second.append_commands([Message(b"q", b"short")], after=second.end_of_commands())
            time.sleep(TIMEOUT_S / 5)

    places = first.append_commands(long(), after=first.end_of_commands())
    append(second, b"short")
    assert [value == b"short" for value in written(second)] == [False] * len(places) + [True]


def test_what_a_dead_worker_has_begun_is_ended(first: KafkaLog, elsewhere: KafkaProducer) -> None:
    append(first, b"mine")
    assert written(first) == [b"mine"]
    with pytest.raises(kafka_errors.KafkaError):
        elsewhere.commit_transaction()
    assert written(first) == [b"mine"]


class Unheard:
    """A producer of either library of whose commit nobody hears, whether it is made or not."""

    def __init__(self, producer: Any, made: bool) -> None:
        self._producer, self._made = producer, made
        self._transaction_manager = self

    def begin_commit(self) -> Any:
        if self._made:
            self._producer.commit_transaction()
        return self

    def wait(self, timeout_ms: float) -> bool:
        return False

    def commit_transaction(self, timeout_s: float) -> None:
        if self._made:
            self._producer.commit_transaction(timeout_s)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._producer, "_transaction_manager", None)
        return getattr(inner if hasattr(inner, name) else self._producer, name)


@pytest.mark.parametrize("made", [True, False], ids=["made", "not made"])
def test_whether_a_commit_that_nobody_heard_of_was_made_is_found_out(first: KafkaLog, made: bool) -> None:
    append(first, b"before")
    transactions: Any = first._pen._transactions
    transactions._producer = Unheard(transactions._producer, made)
    commands = [Message(b"a", b"perhaps"), Message(b"b", b"perhaps")]
    if made:
        assert len(first.append_commands(commands, after=first.end_of_commands())) == 2
    else:
        with pytest.raises(LogMoved):
            first.append_commands(commands, after=first.end_of_commands())
    append(first, b"then")
    assert written(first) == [b"before", *([b"perhaps"] * 2 if made else []), b"then"]
