"""What only the Kafka log promises: others' transactions, partitions that move, a broker that dies."""

from __future__ import annotations

import gc
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka import KafkaProducer
from kafka import TopicPartition as ClusterPartition
from kafka.admin import ConfigResource, ConfigResourceType, MemberToRemove
from kafka.structs import OffsetAndMetadata

from deploy.kafka.broker import Broker, free_ports, start
from service.log import confluent_writer
from service.log.confluent_errors import log_error
from service.log.kafka import KafkaLog
from service.log.kafka_library import CONFLUENT_KAFKA, KAFKA_PYTHON
from service.log.port import (
    Chunk,
    Commit,
    LogFenced,
    LogMoved,
    LogUnavailable,
    LogUnusable,
    Message,
    Output,
    Position,
    Record,
    StateRecord,
    TopicPartition,
)
from tests.log.sites import KafkaSite, begin, commands, events, eventually, gain, opened, settle, values

pytestmark = pytest.mark.kafka

TOPIC = "events.a"
ZERO = TopicPartition(TOPIC, 0)
ONE = TopicPartition(TOPIC, 1)


@pytest.fixture(params=[KAFKA_PYTHON, CONFLUENT_KAFKA])
def client(request: pytest.FixtureRequest) -> str:
    """The library that the log uses; strangers and those who look at the cluster have their own."""
    name: str = request.param
    return name


@pytest.fixture
def site(broker: Broker, client: str) -> KafkaSite:
    return KafkaSite(broker.address, client=client)


@pytest.fixture
def other(client: str) -> str:
    """The library that the log does not use."""
    (name,) = {KAFKA_PYTHON, CONFLUENT_KAFKA} - {client}
    return name


@pytest.fixture
def make(site: KafkaSite) -> Iterator[Callable[[str], KafkaLog]]:
    """Makes a log for a worker, over the library that the site names then; all are closed at the end."""
    made: list[KafkaLog] = []

    def one(worker: str) -> KafkaLog:
        made.append(site.log(worker))
        return made[-1]

    yield one
    for log in made:
        log.close()


@pytest.fixture
def log(make: Callable[[str], KafkaLog]) -> KafkaLog:
    return make("worker")


@pytest.fixture
def stranger(site: KafkaSite) -> Iterator[KafkaProducer]:
    """A transactional producer that is none of ours."""
    producer = KafkaProducer(
        bootstrap_servers=site.bootstrap, transactional_id=site.prefix + "stranger", retry_backoff_ms=5
    )
    producer.init_transactions()
    yield producer
    producer.close(timeout=5)


def step(position: int, *, partition: TopicPartition = ZERO, value: bytes = b"v") -> Commit:
    """An output, a state record and a position."""
    return Commit(
        [Output("matches", b"k", value)],
        {partition: [StateRecord(b"s", value)]},
        {partition: Position(position, position)},
    )


# ---- transactions of others


def test_what_others_abort_is_invisible_and_passed_over(
    log: KafkaLog, site: KafkaSite, stranger: KafkaProducer
) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    log.append_events(TOPIC, [Message(b"k", b"0", 0)])
    for value, keep in ((b"1", False), (b"2", True), (b"3", False)):
        stranger.begin_transaction()
        for _ in range(3):
            stranger.send(site.prefix + TOPIC, value, b"k", partition=0)
        if keep:
            stranger.commit_transaction()
        else:
            stranger.flush()
            stranger.abort_transaction()
    eventually(lambda: log.end_offsets([ZERO]) == {ZERO: 13}, "the mark of the last transaction")
    log.append_events(TOPIC, [Message(b"k", b"4", 0)])
    chunks = events(log, 5)
    assert values(chunks) == [b"0", b"2", b"2", b"2", b"4"]
    assert [record.offset for chunk in chunks for record in chunk.records] == [0, 5, 6, 7, 13]
    assert chunks[-1].next_offset == 14
    assert log.end_offsets([ZERO]) == {ZERO: 14}


@pytest.mark.parametrize("keep", [True, False], ids=["committed", "aborted"])
def test_the_end_of_a_transaction_is_passed_over_though_no_record_follows(
    log: KafkaLog, site: KafkaSite, stranger: KafkaProducer, keep: bool
) -> None:
    """What a fetch brings has no record: as long as a worker is behind the end, no time passes by itself."""
    begin(log, TOPIC, partitions=site.partitions)
    log.append_events(TOPIC, [Message(b"k", b"0", 0)])
    assert values(events(log, 1)) == [b"0"]
    stranger.begin_transaction()
    stranger.send(site.prefix + TOPIC, b"1", b"k", partition=0)
    stranger.flush()
    settle(log)
    stranger.commit_transaction() if keep else stranger.abort_transaction()
    chunks: list[Chunk] = []

    def passed() -> bool:
        chunks.extend(log.poll(timeout_s=0.1, max_records=10).chunks)
        return bool(chunks) and chunks[-1].next_offset == 3

    eventually(passed, "the end of the partition")
    assert values(chunks) == ([b"1"] if keep else [])


def test_what_others_have_not_committed_is_waited_for(
    log: KafkaLog, site: KafkaSite, stranger: KafkaProducer
) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    stranger.begin_transaction()
    stranger.send(site.prefix + TOPIC, b"held back", b"k", partition=0)
    stranger.flush()
    log.append_events(TOPIC, [Message(b"k", b"behind it", 0)])
    for _ in range(3):
        assert not log.poll(timeout_s=0.1, max_records=10).chunks
    assert log.end_offsets([ZERO]) == {ZERO: 0}
    stranger.commit_transaction()
    assert values(events(log, 2)) == [b"held back", b"behind it"]


def test_commands_pass_over_what_was_aborted(log: KafkaLog, site: KafkaSite, stranger: KafkaProducer) -> None:
    log.open()
    log.append_commands([Message(b"a", b"1")], after=log.end_of_commands())
    stranger.begin_transaction()
    stranger.send(site.prefix + "queries", b"never", b"b", partition=0)
    stranger.flush()
    stranger.abort_transaction()
    log.append_commands([Message(b"c", b"2")], after=log.end_of_commands())
    log.seek_commands(0)
    assert [record.value for record in commands(log, 2)] == [b"1", b"2"]
    assert [record.value for record in log.commands(0, log.end_of_commands())] == [b"1", b"2"]


def test_position_and_state_wait_for_a_transaction_that_is_being_committed(
    make: Callable[[str], KafkaLog], site: KafkaSite, stranger: KafkaProducer
) -> None:
    """A worker that was passed over may be in the middle of its last commit."""
    log = make("worker")
    opened(log, TOPIC)
    stranger.begin_transaction()
    stranger.send(site.prefix + "state", b"new", f"{TOPIC}/0/".encode() + b"s", partition=0)
    place = ClusterPartition(site.prefix + TOPIC, 0)
    stranger.send_offsets_to_transaction({place: OffsetAndMetadata(7, "3", -1)}, site.group)
    gain(log, site.partitions)
    with ThreadPoolExecutor() as pool:
        found = pool.submit(lambda: (log.position(ZERO), list(log.restore(ZERO))))
        with pytest.raises(TimeoutError):
            found.result(timeout=0.5)
        stranger.commit_transaction()
        assert found.result(timeout=30) == (Position(7, 3), [StateRecord(b"s", b"new")])


def test_state_alone_waits_for_a_transaction_that_is_being_committed(
    log: KafkaLog, site: KafkaSite, stranger: KafkaProducer
) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    log.commit(step(1, value=b"old"))
    stranger.begin_transaction()
    stranger.send(site.prefix + "state", b"new", f"{TOPIC}/0/".encode() + b"s", partition=0)
    stranger.flush()
    with ThreadPoolExecutor() as pool:
        found = pool.submit(lambda: list(log.restore(ZERO)))
        with pytest.raises(TimeoutError):
            found.result(timeout=0.5)
        stranger.commit_transaction()
        assert found.result(timeout=30) == [StateRecord(b"s", b"new")]


@pytest.mark.parametrize("keep", [True, False], ids=["committed", "aborted"])
@pytest.mark.parametrize("what", ["state", "position"])
def test_a_partition_is_not_at_rest_while_a_transaction_of_another_has_it(
    log: KafkaLog, site: KafkaSite, stranger: KafkaProducer, what: str, keep: bool
) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    assert log.at_rest(ZERO)
    stranger.begin_transaction()
    if what == "state":
        stranger.send(site.prefix + "state", b"new", f"{TOPIC}/0/".encode() + b"s", partition=0)
        stranger.flush()
    else:
        place = ClusterPartition(site.prefix + TOPIC, 0)
        stranger.send_offsets_to_transaction({place: OffsetAndMetadata(7, "3", -1)}, site.group)
    for _ in range(3):
        assert not log.at_rest(ZERO)
        assert log.at_rest(ONE), "the others go on"
    stranger.commit_transaction() if keep else stranger.abort_transaction()
    eventually(lambda: log.at_rest(ZERO), "the end of the transaction")


# ---- the group


def share(first: KafkaLog, second: KafkaLog) -> tuple[TopicPartition, TopicPartition]:
    """Lets a second worker join one that has started both partitions; the partition that each has then."""
    mine: list[set[TopicPartition]] = [{ZERO, ONE}, set()]
    started = {ZERO, ONE}

    def shared() -> bool:
        for owned, log in zip(mine, (first, second), strict=True):
            polled = log.poll(timeout_s=0.05, max_records=10)
            owned.difference_update(polled.assignment.lost)
            owned.update(polled.assignment.gained)
            started.difference_update(polled.assignment.lost)
            assert log is first or not polled.chunks
            assert started.issuperset(chunk.partition for chunk in polled.chunks)
        return [len(owned) for owned in mine] == [1, 1] and first.settled and second.settled

    eventually(shared, "one partition each")
    return mine[0].pop(), mine[1].pop()


def test_partitions_move_and_carry_their_position(
    make: Callable[[str], KafkaLog], site: KafkaSite, other: str
) -> None:
    """To a worker over the other library, and back when that one leaves."""
    first = make("first")
    site.client = other
    second = make("second")
    begin(first, TOPIC, partitions=2)
    first.append_events(TOPIC, [Message(b"k", b"%d" % number, number % 2) for number in range(20)])
    for chunk in events(first, 20):
        first.commit(step(chunk.next_offset - 4, partition=chunk.partition))
    opened(second, TOPIC)
    kept, moved = share(first, second)
    assert {kept, moved} == {ZERO, ONE}
    for log, partition in ((first, kept), (second, moved)):
        assert log.position(partition) == Position(6, 6)
        assert list(log.restore(partition)) == [StateRecord(b"s", b"v")]
        log.start(partition, 6)
        assert len(values(events(log, 4))) == 4
        log.commit(step(10, partition=partition, value=b"after"))
    first.append_events(TOPIC, [Message(b"k", b"last", number) for number in range(2)])
    second.close()
    with closing(site.admin()) as admin:  # it has left, and nobody waits for its session to end
        assert len(admin.describe_groups([site.group])[site.group]["members"]) == 1
    assert gain(first, 2) == [ZERO, ONE]
    for partition in (ZERO, ONE):
        assert first.position(partition) == Position(10, 10)
        assert list(first.restore(partition)) == [StateRecord(b"s", b"after")]
        first.start(partition, 10)
    assert values(events(first, 2)) == [b"last", b"last"]
    assert {value for _, value in site.outputs("matches")} == {b"v", b"after"}


def test_partitions_are_lost_only_when_the_commit_under_way_has_ended(
    make: Callable[[str], KafkaLog], site: KafkaSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends in the middle of the rebalance, no sooner: the group takes its positions all the same."""
    first, second = make("first"), make("second")
    let_end, asked = first._let_end, threading.Event()

    def before_loss() -> None:
        asked.set()
        let_end()

    monkeypatch.setattr(first, "_let_end", before_loss)
    begin(first, TOPIC, partitions=2)
    asked.clear()
    first.append_events(TOPIC, [Message(b"k", b"v", number) for number in range(2)])
    events(first, 2)
    send = first._transactions.begin

    def held_back(*arguments: Any) -> Callable[[], None]:
        end = send(*arguments)

        def late() -> None:
            assert asked.wait(20), "nothing was about to be lost"
            end()

        return late

    monkeypatch.setattr(first._transactions, "begin", held_back)
    under_way = first.begin_commit(step(1)._replace(positions={ZERO: Position(1, 1), ONE: Position(1, 1)}))
    opened(second, TOPIC)
    assert not under_way.done()
    kept, moved = share(first, second)
    assert under_way.done()
    under_way.result()
    assert second.position(moved) == first.position(kept) == Position(1, 1)
    assert site.outputs("matches") == [(b"k", b"v")]


def test_the_loser_neither_delivers_nor_commits(make: Callable[[str], KafkaLog], site: KafkaSite) -> None:
    first, second = make("first"), make("second")
    begin(first, TOPIC, partitions=2)
    first.append_events(TOPIC, [Message(b"k", b"%d" % number, number % 2) for number in range(400)])
    read = events(first, 4, max_records=4)  # there is more, fetched and not delivered
    assert read
    opened(second, TOPIC)
    kept, moved = share(first, second)
    with pytest.raises(LogFenced):
        first.commit(step(1, partition=moved))
    with pytest.raises(LogFenced):
        first.start(moved, 0)
    first.resume([moved])
    first.start(kept, 0)
    found = events(first, 200)
    assert {chunk.partition for chunk in found} == {kept}
    assert second.position(moved) is None
    assert site.outputs("matches") == []
    second.start(moved, None)
    assert len(events(second, 200)) > 0
    second.commit(step(200, partition=moved))
    assert second.position(moved) == Position(200, 200)


def test_a_worker_that_was_passed_over_starts_afresh(
    make: Callable[[str], KafkaLog], site: KafkaSite
) -> None:
    """The group has thrown it out and it has not noticed: the broker itself refuses the commit."""
    log = make("worker")
    begin(log, TOPIC, partitions=2)
    log.append_events(TOPIC, [Message(b"k", b"0", 0)])
    events(log, 1)
    with closing(site.admin()) as admin:
        described = admin.describe_groups([site.group])[site.group]
        members = [MemberToRemove(member_id=member["member_id"]) for member in described["members"]]
        admin.remove_group_members(site.group, members)
    with pytest.raises(LogFenced):
        log.commit(step(1))
    with pytest.raises(LogFenced):
        log.commit(step(1))
    log.close()
    begin(log, TOPIC, partitions=2)
    assert log.position(ZERO) is None
    assert site.outputs("matches") == []
    assert values(events(log, 1)) == [b"0"]
    log.commit(step(1))
    assert log.position(ZERO) == Position(1, 1)


def test_one_transactional_id_is_one_workers(make: Callable[[str], KafkaLog], site: KafkaSite) -> None:
    first, second = make("same"), make("same")
    begin(first, TOPIC, partitions=2)
    first.commit(step(1, value=b"first"))
    second.open()
    with pytest.raises(LogFenced):
        first.commit(step(2, value=b"too late"))
    assert first.position(ZERO) == Position(1, 1)
    assert site.outputs("matches") == [(b"k", b"first")]


def test_a_group_goes_on_over_the_other_library(site: KafkaSite, other: str) -> None:
    with closing(site.log()) as log:
        begin(log, TOPIC, partitions=2)
        log.append_events(TOPIC, [Message(b"k", b"%d" % number, 0) for number in range(4)])
        log.append_commands([Message(b"q", b"command")], after=log.end_of_commands())
        events(log, 4)
        log.commit(step(3))
    site.client = other
    with closing(site.log()) as log:
        begin(log, TOPIC, partitions=2)
        assert log.position(ZERO) == Position(3, 3)
        assert list(log.restore(ZERO)) == [StateRecord(b"s", b"v")]
        assert [record.value for record in log.commands(0, log.end_of_commands())] == [b"command"]
        assert values(events(log, 1)) == [b"3"]


def test_what_was_noted_beside_an_offset_is_read_as_it_was_written(
    make: Callable[[str], KafkaLog], site: KafkaSite, stranger: KafkaProducer
) -> None:
    """With an end, as confluent-kafka writes it, and without, as kafka-python and versions before this do."""
    log = make("worker")
    opened(log, TOPIC)
    gain(log, site.partitions)
    place = ClusterPartition(site.prefix + TOPIC, 0)
    for command in (7, 31, 456, 98_765, 1_234_567, 89_012_345_678):
        for end in ("", "\0"):
            stranger.begin_transaction()
            note = OffsetAndMetadata(2 * command, f"{command}{end}", -1)
            stranger.send_offsets_to_transaction({place: note}, site.group)
            stranger.commit_transaction()
            assert log.position(ZERO) == Position(2 * command, command)


# ---- the position beside the state


def test_where_the_group_and_the_state_differ_the_state_decides(
    site: KafkaSite, caplog: pytest.LogCaptureFixture
) -> None:
    """One group after the other, and the first again; then somebody sets its offset by hand."""
    groups = site.group, site.group + "-2"
    for group, at in ((groups[0], 3), (groups[1], 7), (groups[0], 9)):
        site.group = group
        caplog.clear()
        with closing(site.log()) as log:
            opened(log, TOPIC)
            gain(log, site.partitions)
            assert log.position(ZERO) == {3: None, 7: Position(3, 3), 9: Position(7, 7)}[at]
            warned = [one.getMessage() for one in caplog.records if one.name == "rangewatch"]
            assert len(warned) == (at == 9)
            log.append_events(TOPIC, [Message(b"k", b"v", 0)])
            log.commit(step(at, value=b"%d" % at))
            assert log.position(ZERO) == Position(at, at)
            assert list(log.restore(ZERO)) == [StateRecord(b"s", b"%d" % at)]
    place = f"{site.prefix}{TOPIC}/0"
    assert f"{place} goes on where its state is, at event 7 and command 7; event 3 and command 3" in warned[0]
    eventually(lambda: not members(site), "the group is empty")
    with closing(site.admin()) as admin:
        place = ClusterPartition(site.prefix + TOPIC, 0)
        admin.alter_group_offsets(site.group, {place: OffsetAndMetadata(0, "", -1)})
    with closing(site.log()) as log:
        opened(log, TOPIC)
        gain(log, site.partitions)
        assert log.position(ZERO) == Position(9, 9)
    assert "at event 9 and command 9; event 0 and command none" in caplog.text


def members(site: KafkaSite) -> list[Any]:
    with closing(site.admin()) as admin:
        found: list[Any] = admin.describe_groups([site.group])[site.group]["members"]
        return found


def test_the_state_is_read_once_and_not_for_what_nobody_has_moved(
    make: Callable[[str], KafkaLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = make("first"), make("second")
    begin(first, TOPIC, partitions=2)
    for partition in (ZERO, ONE):
        first.commit(step(1, partition=partition))
    opened(second, TOPIC)
    kept, moved = share(first, second)
    read: list[tuple[KafkaLog, int]] = []

    def counted(log: KafkaLog) -> None:
        records = log._states._records

        def counting(partition: TopicPartition, start: int, end: int) -> Iterator[Record]:
            if start < end:
                read.append((log, partition.partition))
            return records(partition, start, end)

        monkeypatch.setattr(log._states, "_records", counting)

    counted(first)
    counted(second)
    assert first.position(kept) == second.position(moved) == Position(1, 1)
    assert list(second.restore(moved)) == [StateRecord(b"s", b"v")]
    assert read == [(second, moved.partition)]
    second.commit(step(2, partition=moved, value=b"w"))
    assert list(second.restore(moved)) == [StateRecord(b"s", b"w")], "it is read on"


def made_anew(site: KafkaSite) -> None:
    """The topic of events is deleted, and its name is free again."""
    with closing(site.admin()) as admin:
        admin.delete_topics([site.prefix + TOPIC])
        eventually(lambda: admin.describe_topics([site.prefix + TOPIC])[0]["error_code"], "it is gone")


def test_a_topic_that_was_deleted_and_made_anew_is_another_one(site: KafkaSite, other: str) -> None:
    """As long as it is empty, and when it has more than the old one had; whichever library wrote that."""
    with closing(site.log()) as log:
        begin(log, TOPIC, partitions=2)
        log.append_events(TOPIC, [Message(b"k", b"old", 0) for _ in range(3)])
        log.commit(step(3))
        log.commit(Commit([], {}, {ONE: Position(0, 3)}))
    made_anew(site)
    site.client = other
    with closing(site.log()) as log:
        opened(log, TOPIC)
        gain(log, 2)
        for count in (0, 5):
            log.append_events(TOPIC, [Message(b"k", b"new", 0) for _ in range(count)])
            with pytest.raises(
                LogUnusable, match=rf"{TOPIC} was deleted and made anew: its id is .* up to 3 "
            ):
                log.position(ZERO)
        assert log.position(ONE) == Position(0, 3), "of this one nothing had been processed"


def test_a_position_of_an_earlier_version_has_no_id_of_the_topic(
    log: KafkaLog, site: KafkaSite, stranger: KafkaProducer
) -> None:
    opened(log, TOPIC)
    gain(log, site.partitions)
    stranger.begin_transaction()
    stranger.send(site.prefix + "state", b"3 2", f"{TOPIC}/0/@".encode(), partition=0)
    stranger.commit_transaction()
    assert log.position(ZERO) == Position(3, 2)
    log.commit(step(4))
    log.close()
    made_anew(site)
    opened(log, TOPIC)
    gain(log, site.partitions)
    with pytest.raises(LogUnusable, match="made anew"):
        log.position(ZERO)


# ---- what the cluster is like


def test_topics_are_made_as_they_must_be(log: KafkaLog, site: KafkaSite) -> None:
    opened(log, TOPIC)
    with closing(site.admin()) as admin:
        described = {one["name"]: one for one in admin.describe_topics()}
        names = ["matches", "borders", "joins", "aggregates", "dead_letter", "state", "queries", TOPIC]
        sizes = {name: len(described[site.prefix + name]["partitions"]) for name in names}
        resources = [ConfigResource(ConfigResourceType.TOPIC, site.prefix + name) for name in names]
        found: Any = admin.describe_configs(resources, config_filter="all")
    assert sizes == {**dict.fromkeys(names, 2), "queries": 1}
    configs = found[ConfigResourceType.TOPIC.name.lower()]
    policy = {name: configs[site.prefix + name]["cleanup.policy"]["value"] for name in names}
    assert policy == {**dict.fromkeys(names, "delete"), "state": "compact", "queries": "compact"}
    week_ms = 7 * 24 * 60 * 60 * 1000
    assert configs[site.prefix + "queries"]["min.compaction.lag.ms"]["value"] == str(week_ms)


def test_a_command_topic_without_order_is_refused(log: KafkaLog, site: KafkaSite) -> None:
    with closing(site.admin()) as admin:
        admin.create_topics({site.prefix + "queries": {"num_partitions": 2, "replication_factor": 1}})
    with pytest.raises(LogUnusable, match=r"queries.*one partition"):
        log.open()


@pytest.mark.parametrize("topic", ["state", "queries"])
def test_a_topic_that_would_lose_what_it_keeps_is_refused(log: KafkaLog, site: KafkaSite, topic: str) -> None:
    with closing(site.admin()) as admin:
        admin.create_topics({site.prefix + topic: {"num_partitions": 1, "replication_factor": 1}})
    with pytest.raises(LogUnusable, match=rf"{topic} has cleanup\.policy=delete"):
        log.open()


def test_an_offset_that_is_not_ours_is_refused(log: KafkaLog, site: KafkaSite) -> None:
    with closing(site.admin()) as admin:
        topic = {"num_partitions": 2, "replication_factor": 1}
        admin.create_topics({site.prefix + TOPIC: topic}, wait_for_metadata=True)
        place = ClusterPartition(site.prefix + TOPIC, 0)
        admin.alter_group_offsets(site.group, {place: OffsetAndMetadata(3, "", -1)})
    opened(log, TOPIC)
    gain(log, 2)
    with pytest.raises(LogUnusable, match="another group"):
        log.position(ZERO)


def test_what_the_broker_finds_too_large_leaves_nothing(log: KafkaLog, site: KafkaSite) -> None:
    with closing(site.admin()) as admin:
        small = {"num_partitions": 2, "replication_factor": 1, "configs": {"max.message.bytes": "2000"}}
        admin.create_topics({site.prefix + "matches": small}, wait_for_metadata=True)
    begin(log, TOPIC, partitions=2)
    with pytest.raises(LogUnusable):
        log.commit(step(1, value=bytes(50_000)))
    assert log.position(ZERO) is None
    assert list(log.restore(ZERO)) == []
    assert site.outputs("matches") == []
    log.commit(step(2))
    assert log.position(ZERO) == Position(2, 2)
    assert site.outputs("matches") == [(b"k", b"v")]


def test_a_call_that_only_says_that_its_transaction_has_failed_is_asked_why(broker: Broker) -> None:
    site = KafkaSite(broker.address, client=CONFLUENT_KAFKA)
    with closing(site.admin()) as admin:
        small = {"num_partitions": 1, "replication_factor": 1, "configs": {"max.message.bytes": "2000"}}
        admin.create_topics({site.prefix + "matches": small}, wait_for_metadata=True)
    options = {"transactional.id": f"{site.prefix}why", "message.max.bytes": 1_000_000, "log_level": 0}
    producer = Producer({"bootstrap.servers": broker.address, **options})
    producer.init_transactions(20)
    producer.begin_transaction()
    said = KafkaException(KafkaError(KafkaError._STATE))
    producer.produce(f"{site.prefix}matches", bytes(50_000))
    producer.flush(20)
    why = confluent_writer._cause(producer, said)
    assert isinstance(log_error(why), LogUnusable), "the message is too large"
    other = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    assert confluent_writer._cause(producer, other) is other


def test_prefixes_keep_services_apart(broker: Broker, client: str) -> None:
    one, other = KafkaSite(broker.address, client=client), KafkaSite(broker.address, client=client)
    for site in (one, other):
        with closing(site.log()) as log:
            begin(log, TOPIC, partitions=2)
            assert log.position(ZERO) is None
            assert log.end_offsets([ZERO]) == {ZERO: 0}
            log.append_events(TOPIC, [Message(b"k", b"v", 0)])
            log.commit(step(1))


def test_state_partitions_are_shared_by_topics_and_kept_apart(log: KafkaLog, site: KafkaSite) -> None:
    wide = TopicPartition("events.wide", 2)  # three partitions on two of state
    with closing(site.admin()) as admin:
        topic = {"num_partitions": 3, "replication_factor": 1}
        admin.create_topics({site.prefix + wide.topic: topic}, wait_for_metadata=True)
    opened(log, TOPIC, wide.topic)
    gain(log, 5)
    assert log.partitions(wide.topic) == 3
    for partition in (ZERO, ONE, wide, TopicPartition(wide.topic, 0)):
        log.commit(step(1, partition=partition, value=repr(partition).encode()))
    for partition in (ZERO, ONE, wide, TopicPartition(wide.topic, 0)):
        assert list(log.restore(partition)) == [StateRecord(b"s", repr(partition).encode())]


def test_what_is_gone_is_not_passed_over_in_silence(log: KafkaLog, site: KafkaSite) -> None:
    begin(log, TOPIC, partitions=2)
    log.append_events(TOPIC, [Message(b"k", b"%d" % number, 0) for number in range(6)])
    events(log, 6)
    log.commit(step(2))
    site.trim(log, ZERO, 4)
    log.start(ZERO, 2)

    def refused() -> bool:
        try:
            assert not log.poll(timeout_s=0.1, max_records=10).chunks
        except LogFenced as error:
            return re.search("out ?of ?range", str(error), re.IGNORECASE) is not None
        return False

    eventually(refused, "a word about what is gone")
    log.close()
    begin(log, "events.b", partitions=2)
    assert log.answers()


def test_outputs_are_left_to_consumers(log: KafkaLog) -> None:
    with pytest.raises(NotImplementedError):
        log.read("matches", after=0, limit=1)


@pytest.mark.parametrize("topic", ["events.a_b", "t" * 249])
def test_what_cannot_be_a_topic_is_refused_and_the_log_goes_on(
    log: KafkaLog, site: KafkaSite, topic: str
) -> None:
    """For Kafka dots and underscores collide, and the prefix makes a name longer."""
    log.open()
    log.make_topic("events.a.b")
    log.make_topic("events.a.b")
    with pytest.raises(LogUnusable, match=r"(?i)invalidtopic|topic_exception"):
        log.make_topic(topic)
    log.subscribe(["events.a.b"])
    gain(log, site.partitions)
    assert log.partitions("events.a.b") == site.partitions


def test_a_topic_that_is_not_there_is_named(log: KafkaLog) -> None:
    log.open()
    with pytest.raises(LogUnavailable, match=r"events\.nowhere"):
        log.partitions("events.nowhere")


#: The library leaves it to the garbage collector to close the socket of an attempt to connect that fails.
leaves_sockets = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@leaves_sockets
def test_nobody_answers(client: str) -> None:
    (port,) = free_ports(1)
    log = KafkaSite(f"127.0.0.1:{port}", client=client, timeout_s=1.0).log()
    with pytest.raises(LogUnavailable):
        log.open()
    log.close()
    assert not log.answers()
    gc.collect()


# ---- a broker that dies


class Mortal:
    """A broker that is killed and started again, and goes from test to test as the last one has left it."""

    def __init__(self, folder: Path) -> None:
        self._ports = free_ports(2)
        self._folder = folder
        self.broker = self.start()

    def start(self) -> Broker:
        self.broker = start(*self._ports, self._folder)
        return self.broker


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mortal]:
    one = Mortal(tmp_path_factory.mktemp("mortal") / "node")
    yield one
    one.broker.kill()


@pytest.fixture
def mortal(killed: Mortal) -> Iterator[Mortal]:
    """It is there at the beginning."""
    if not killed.broker.alive():
        killed.start()
    yield killed
    gc.collect()  # the sockets, see leaves_sockets


@leaves_sockets
def test_a_broker_that_dies_is_waited_for_and_nothing_is_lost_or_doubled(mortal: Mortal, client: str) -> None:
    site = KafkaSite(mortal.broker.address, client=client, timeout_s=3.0)
    log = site.log()
    with closing(log):
        begin(log, TOPIC, partitions=2)
        log.append_events(TOPIC, [Message(b"k", b"0", 0), Message(b"k", b"1", 0)])
        assert values(events(log, 2, max_records=1)) == [b"0", b"1"]
        log.commit(step(1, value=b"before"))
        mortal.broker.kill()
        with pytest.raises(LogUnavailable):
            log.commit(step(2, value=b"after"))
        with pytest.raises(LogUnavailable):
            log.append_events(TOPIC, [Message(b"k", b"lost", 0)])
        with pytest.raises(LogUnavailable):
            log.end_of_commands()
        assert not log.poll(timeout_s=0.2, max_records=10).chunks
        mortal.start()

        def committed() -> bool:
            try:
                log.commit(step(2, value=b"after"))
            except LogUnavailable:
                return False
            return True

        eventually(committed, "the commit, tried again")

        def restored() -> bool:
            try:
                return log.position(ZERO) == Position(2, 2) and dict(log.restore(ZERO)) == {b"s": b"after"}
            except LogUnavailable:  # other partitions than those of the commit may have no leader yet
                return False

        eventually(restored, "position and state are read")
        assert site.outputs("matches") == [(b"k", b"before"), (b"k", b"after")]
        log.append_events(TOPIC, [Message(b"k", b"2", 0)])
        found: list[bytes | None] = []

        def read() -> bool:
            polled = log.poll(timeout_s=0.1, max_records=10)
            for partition in polled.assignment.gained:  # it was away for longer than the group waits, perhaps
                position = log.position(partition)
                log.start(partition, position.event if position else None)
            found.extend(values(list(polled.chunks)))
            return bool(found)

        eventually(read, "the next event")
        assert found == [b"2"]


class Interrupted:
    """A producer of either library that stands still at the moment of the commit, as its broker does."""

    def __init__(self, producer: Any, stop: Callable[[], None]) -> None:
        self._producer, self._stop = producer, stop
        self._transaction_manager = self

    def begin_commit(self) -> Any:
        self._stop()
        return self._producer._transaction_manager.begin_commit()

    def commit_transaction(self, timeout_s: float) -> None:
        self._stop()
        self._producer.commit_transaction(timeout_s)

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._producer, "_transaction_manager", None)
        return getattr(inner if hasattr(inner, name) else self._producer, name)


def stand_still(pid: int) -> None:
    """Returns when all of a child has stopped: where processors are busy, some of it works on for a while."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)


@leaves_sockets
def test_a_commit_of_unknown_outcome_is_looked_up(mortal: Mortal, client: str) -> None:
    site, pid = KafkaSite(mortal.broker.address, client=client, timeout_s=3.0), mortal.broker.pid
    log = site.log()
    with closing(log):
        begin(log, TOPIC, partitions=2)
        log.commit(step(1, value=b"before"))
        transactions: Any = log._transactions
        transactions._producer = Interrupted(transactions._producer, lambda: stand_still(pid))
        threading.Timer(6.0, os.kill, (pid, signal.SIGCONT)).start()
        with pytest.raises(LogFenced, match="not known"):
            log.commit(step(2, value=b"perhaps"))
        with pytest.raises(LogFenced, match="not known"):
            log.commit(step(2, value=b"perhaps"))
        log.close()

        def again() -> bool:
            try:
                begin(log, TOPIC, partitions=2)
            except LogUnavailable:
                log.close()
                return False
            return True

        eventually(again, "the log, opened anew")
        done = log.position(ZERO) == Position(2, 2)
        assert done or log.position(ZERO) == Position(1, 1)
        outputs = [(b"k", b"before"), *([(b"k", b"perhaps")] if done else [])]
        assert site.outputs("matches") == outputs
        assert dict(log.restore(ZERO)) == {b"s": b"perhaps" if done else b"before"}
        log.commit(step(3, value=b"then"))
        assert site.outputs("matches") == [*outputs, (b"k", b"then")]


@leaves_sockets
def test_commands_of_unknown_outcome_are_written_once_at_the_most(mortal: Mortal, client: str) -> None:
    """The cluster is away for too long to be asked; ``test_pen`` has what is found out where it answers."""
    site, pid = KafkaSite(mortal.broker.address, client=client, timeout_s=3.0), mortal.broker.pid
    with closing(site.log()) as log:
        log.open()
        log.append_commands([Message(b"q", b"before")], after=0)
        transactions: Any = log._pen._transactions
        transactions._producer = Interrupted(transactions._producer, lambda: stand_still(pid))
        try:
            with pytest.raises(LogFenced, match="not known"):
                log.append_commands([Message(b"q", b"perhaps")], after=log.end_of_commands())
        finally:
            os.kill(pid, signal.SIGCONT)

        def again() -> bool:
            try:
                log.append_commands([Message(b"q", b"then")], after=log.end_of_commands())
            except (LogUnavailable, LogMoved):
                return False
            return True

        eventually(again, "commands are taken again")
        found = [record.value for record in log.commands(0, log.end_of_commands())]
        assert found in ([b"before", b"then"], [b"before", b"perhaps", b"then"])
