"""Reading from Kafka over confluent-kafka. What the methods do says ``kafka_library``; ``kafka_reader`` is
the same over kafka-python.

Idea: what the library is assigned is never what the group gave, but only those partitions that have been
started and are not paused, each at the offset where reading goes on. Whenever that set changes it is assigned
anew by the next poll. So there is no seeking and no pausing, and what was fetched for an older set is gone.

A poll takes what the library's threads have fetched. Waiting cannot be ended from outside, so it goes in
slices of ``_SLICE_S``.

What the group has committed is asked for over kafka-python. This library takes a note beside an offset for
text that ends with a zero byte, and where there is none, as in what kafka-python writes, it reads on into
memory that is not the note's: it might tell of another command offset.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, islice, repeat
from operator import is_
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka import Message as Found
from confluent_kafka import TopicPartition as ClusterPartition

from service.log.confluent_client import MARK_WAIT_MS, Cluster
from service.log.kafka_library import Mark
from service.log.kafka_reader import Notes
from service.log.kafka_share import Share
from service.log.port import Assignment, Chunk, Record, TopicPartition

_FETCH_WAIT_MS = 250
_SLICE_S = 0.005
_JOIN_WAIT_S = 0.3
#: The library's own default, and by its rules never less than a session.
_POLL_WITHIN_MS = 300_000
#: The library's own limit of one call.
_MOST = 1_000_000

_record = partial(tuple.__new__, Record)


def _records(found: Sequence[Found]) -> list[Record]:
    stamps = [stamp for _, stamp in map(Found.timestamp, found)]
    columns = zip(
        map(Found.offset, found), stamps, map(Found.key, found), map(Found.value, found), strict=True
    )
    return list(map(_record, columns))


def _by_place(found: Sequence[Found]) -> Iterator[tuple[tuple[str, int], list[Record]]]:
    """Stretches of one partition, in the order in which they came. What runs for each message is C."""
    places: list[Any] = list(zip(map(Found.topic, found), map(Found.partition, found), strict=True))
    records = iter(_records(found))
    for place, some in groupby(places):
        yield place, list(islice(records, len(list(some))))


class GroupReader:
    """The events of those partitions that the group gives to this worker."""

    def __init__(
        self, cluster: Cluster, group: str, session_timeout_s: float, before_loss: Callable[[], None]
    ) -> None:
        self._cluster = cluster
        session_timeout_ms = int(session_timeout_s * 1000)
        self._consumer = cluster.consumer(
            group_id=group,
            partition_assignment_strategy="range",
            fetch_wait_max_ms=_FETCH_WAIT_MS,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=session_timeout_ms // 5,
            max_poll_interval_ms=max(_POLL_WITHIN_MS, session_timeout_ms),
            auto_offset_reset="error",  # what is gone is not passed over in silence
            enable_partition_eof=True,
        )
        self._notes = Notes(cluster.beside, group)
        self._share = Share(before_loss)
        self._topics: list[str] = []
        #: where reading goes on, of every partition that has been started
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._stale = False
        #: what ended a wait, for the next poll
        self._first: list[Found] = []

    @property
    def owned(self) -> set[TopicPartition]:
        return self._share.owned

    @property
    def membership(self) -> Any:
        return self._share.membership

    @property
    def settled(self) -> bool:
        return self._share.settled

    @property
    def changed(self) -> bool:
        return self._share.changed

    def take_assignment(self) -> Assignment:
        return self._share.take()

    def close(self, timeout_s: float) -> None:
        # The library would wait for an answer of the group as long as for any other.
        closing = threading.Thread(target=self._close, name="kafka-leave", daemon=True)
        closing.start()
        closing.join(timeout_s)
        self._notes.close()

    def _close(self) -> None:
        with contextlib.suppress(KafkaException, RuntimeError):
            self._consumer.close()

    def subscribe(self, topics: Iterable[str]) -> None:
        wanted = sorted(topics)
        if wanted == self._topics:
            return
        self._topics = wanted
        with self._cluster.translated():
            if wanted:
                self._share.joined = False
                names = [self._cluster.name(topic) for topic in wanted]
                self._consumer.subscribe(names, on_assign=self._assigned, on_revoke=self._revoked)
            else:
                self._consumer.unsubscribe()
                self._forget()

    # ---- called back while the consumer is polled

    def _assigned(self, _: object, assigned: Sequence[ClusterPartition]) -> None:
        self._consumer.assign([])  # until they are started
        self._share.assign(self._cluster.own(one.topic, one.partition) for one in assigned)
        self._share.membership = self._consumer.consumer_group_metadata()

    def _revoked(self, *_: object) -> None:
        self._forget()

    def _forget(self) -> None:
        self._share.revoke(set(self.owned))
        self._share.joined = not self._topics
        self._positions.clear()
        self._paused.clear()
        self._first = []
        self._stale = False

    # ---- reading

    def poll(self, max_records: int) -> list[Chunk]:
        with self._cluster.translated():
            self._join()
            if self._stale:
                self._assign_anew()
            first, self._first = self._first, []
            found = [*first, *self._consumer.consume(min(max_records, _MOST), 0)]
            if len(found) > max_records:
                self._first = found[max_records:]
                del found[max_records:]
        errors = list(map(Found.error, found))
        if all(map(is_, errors, repeat(None))):  # an error that is compared with None is one of its own
            return self._chunks(found)
        chunks = self._chunks([one for one, error in zip(found, errors, strict=True) if error is None])
        marks = [self._mark(one) for one, error in zip(found, errors, strict=True) if error is not None]
        return [*chunks, *(mark for mark in marks if mark is not None)]

    def _join(self) -> None:
        """Waits for a moment in a rebalance, so that what is asked meanwhile finds the partitions there."""
        deadline = time.monotonic() + _JOIN_WAIT_S
        while not self._share.joined and time.monotonic() < deadline:
            first = self._consumer.poll(_SLICE_S)
            if first is not None:
                self._first.append(first)

    def _assign_anew(self) -> None:
        self._consumer.assign(
            [
                self._cluster.partition(partition, offset)
                for partition, offset in self._positions.items()
                if partition not in self._paused
            ]
        )
        self._first = []
        self._stale = False

    def _chunks(self, found: list[Found]) -> list[Chunk]:
        by_place: dict[TopicPartition, list[Record]] = {}
        for place, records in _by_place(found):
            by_place.setdefault(self._cluster.own(*place), []).extend(records)
        return [
            self._chunk(partition, records, records[-1].offset + 1)
            for partition, records in by_place.items()
            # What was fetched before the partition was lost, or started elsewhere, has come too late.
            if records[0].offset >= self._positions.get(partition, records[0].offset + 1)
        ]

    def _chunk(self, partition: TopicPartition, records: list[Record], next_offset: int) -> Chunk:
        self._positions[partition] = next_offset
        return Chunk(partition, records, next_offset)

    def _mark(self, found: Found) -> Chunk | None:
        """The end of a partition that lies past its last record; raises for trouble that does not pass."""
        end = self._cluster.next_offset(found)
        topic, number = found.topic(), found.partition()
        if end < 0 or topic is None or number is None:
            return None
        partition = self._cluster.own(topic, number)
        if end <= self._positions.get(partition, end):
            return None
        return self._chunk(partition, [], end)

    def wait(self, commands: CommandReader, news: threading.Event, timeout_s: float) -> None:
        slice_s = min(timeout_s, _SLICE_S)
        if news.is_set() or self._first or self._stale:
            return
        if not self._topics:
            news.wait(slice_s)
            return
        with self._cluster.translated():
            first = self._consumer.poll(slice_s)
        if first is not None:
            self._first = [first]

    # ---- partitions

    def committed(self, partition: TopicPartition) -> Mark | None:
        return self._notes.committed(partition)

    def rests(self, partition: TopicPartition) -> bool:
        return self._notes.rests(partition)

    def start(self, partition: TopicPartition, offset: int) -> None:
        self._share.check(partition)
        self._positions[partition] = offset
        self._stale = True

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.update(self.owned.intersection(partitions))
        self._stale = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.difference_update(self.owned.intersection(partitions))
        self._stale = True


class CommandReader:
    """The committed commands from an offset on. Before the first ``seek`` there are none."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._source = TopicPartition(topic, 0)
        self._consumer = cluster.consumer(fetch_wait_max_ms=MARK_WAIT_MS, enable_partition_eof=True)
        self._position: int | None = None

    def close(self) -> None:
        with self._cluster.translated():
            self._consumer.close()

    def seek(self, offset: int) -> None:
        with self._cluster.translated():
            self._consumer.assign([self._cluster.partition(self._source, offset)])
        self._position = offset

    def poll(self, max_records: int) -> list[Record]:
        if self._position is None:
            return []
        with self._cluster.translated():
            found = self._consumer.consume(max_records, 0)
        for one in found:
            self._position = max(self._position, self._cluster.next_offset(one))
        return _records([one for one in found if one.error() is None])

    @property
    def position(self) -> int:
        return self._position or 0
