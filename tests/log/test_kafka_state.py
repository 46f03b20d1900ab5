"""The state topic, read once for all partitions that wait."""

from __future__ import annotations

from collections.abc import Iterator

from service.log.kafka_state import States, head_of
from service.log.port import Record, TopicPartition

A, B, C = TopicPartition("a", 0), TopicPartition("b", 2), TopicPartition("a", 1)


class Topic:
    """Two partitions; ``read`` is how many records each reading came upon."""

    def __init__(self) -> None:
        self.partitions: dict[int, list[Record]] = {0: [], 1: []}
        self.read: list[int] = []
        self.states = States(lambda: 2, lambda place: len(self.partitions[place.partition]), self._records)

    def put(self, partition: TopicPartition, key: bytes, value: bytes | None) -> None:
        records = self.partitions[partition.partition % 2]
        records.append(Record(len(records), 0, head_of(partition) + key, value))

    def _records(self, place: TopicPartition, start: int, end: int) -> Iterator[Record]:
        self.read.append(end - start)
        yield from self.partitions[place.partition][start:end]


def test_a_partition_is_read_once_for_all_that_wait_and_then_on_from_there() -> None:
    topic = Topic()
    for partition in (A, B, C):
        topic.put(partition, b"k/1", partition.topic.encode())
    topic.put(A, b"gone", b"1")
    topic.put(A, b"gone", None)
    assert topic.states.living(A, {A, B, C}) == {b"k/1": b"a"}
    topic.put(B, b"later", b"2")
    topic.put(B, b"k/1", None)
    assert topic.states.living(B, {B, C}) == {b"later": b"2"}
    assert topic.states.living(C, {C}) == {b"k/1": b"a"}
    assert topic.read == [4, 2, 1]


def test_who_was_not_waiting_then_is_read_from_the_beginning() -> None:
    topic = Topic()
    topic.put(A, b"k", b"1")
    topic.put(B, b"k", b"2")
    assert topic.states.living(A, {A}) == {b"k": b"1"}
    assert topic.states.living(B, {B}) == {b"k": b"2"}
    topic.states.drop(B)
    assert topic.states.living(B, ()) == {b"k": b"2"}
    assert topic.read == [2, 2, 2]


def test_what_is_given_is_the_askers_own() -> None:
    topic = Topic()
    topic.put(A, b"k", b"1")
    topic.states.living(A, ()).clear()
    assert topic.states.living(A, ()) == {b"k": b"1"}


def test_keys_of_something_else_are_passed_over() -> None:
    topic = Topic()
    for key in (b"", b"/", b"//", b"a", b"a/0", b"a/0x/k", None):
        topic.partitions[0].append(Record(0, 0, key, b"?"))
    assert topic.states.living(A, ()) == {}
