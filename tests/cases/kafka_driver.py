"""Cases over HTTP on a real broker: transactions, holes in offsets, a partition that changes hands."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as ClusterPartition

from deploy.kafka.broker import Broker
from service.log.kafka import KafkaLog
from service.log.port import Log, Polled, TopicPartition
from service.settings import Settings
from tests.cases.driver import Mode
from tests.cases.http_driver import HttpDriver, Instance, wait_until

TOPICS = ("dead_letter", "matches", "borders")
OUTPUT_PARTITIONS = 1

_numbers = itertools.count()


class StampedLog(KafkaLog):
    """A log whose events bear the time of the case, not that of this machine: a broker takes no stamps of
    other centuries."""

    def __init__(self, stamp: Callable[[str, int], int], *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._stamp = stamp

    def poll(self, *, timeout_s: float, max_records: int) -> Polled:
        polled = super().poll(timeout_s=timeout_s, max_records=max_records)
        chunks = [
            chunk._replace(
                records=[
                    record._replace(ts=self._stamp(chunk.partition.topic, record.offset))
                    for record in chunk.records
                ]
            )
            for chunk in polled.chunks
        ]
        return polled._replace(chunks=chunks)


class KafkaDriver(HttpDriver):
    """One service after another in one consumer group; all cases of a module share its topics."""

    def __init__(self, broker: Broker, mode: Mode) -> None:
        self._bootstrap = broker.address
        self.prefix = f"cases-{os.getpid()}-{next(_numbers)}."
        self._workers = itertools.count()
        self._consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        # Sees what is written before it is visible: a commit is answered before its marks are everywhere.
        self._ends = KafkaConsumer(bootstrap_servers=self._bootstrap)
        self._producer: KafkaProducer | None = None
        self._read: list[tuple[str, bytes | None, bytes]] = []
        self._assigned = False
        #: the time of the case at which a message was sent, by topic and offset
        self._stamps: dict[tuple[str, int], int] = {}
        super().__init__(
            mode, Settings(log=f"kafka:{self._bootstrap}", topic_prefix=self.prefix, partitions=1)
        )

    def make_log(self) -> Log:
        return StampedLog(
            lambda topic, offset: self._stamps.get((topic, offset), self.now),
            self._bootstrap,
            transactional_id=f"{self.prefix}worker-{next(self._workers)}",
            group=f"{self.prefix}group",
            topic_prefix=self.prefix,
            partitions=OUTPUT_PARTITIONS,
        )

    def close(self) -> None:
        super().close()
        self._consumer.close(autocommit=False)
        self._ends.close()
        if self._producer is not None:
            self._producer.close()

    def send(self, source: str, key: bytes | None, value: bytes | None) -> tuple[str, int]:
        place = super().send(source, key, value)
        self._stamps[place] = self.now
        return place

    def rebalance(self) -> None:
        """A second worker joins the group, the first one leaves: its partitions move."""
        leaving = self.instance
        self.instance = Instance(self.make_log(), self._settings, lambda: self.now)
        wait_until(lambda: self.instance.runtime.ready or self.instance.runtime.failure is not None)
        leaving.stop()
        self._wait_for_partitions()

    def restart(self) -> None:
        super().restart()
        self._wait_for_partitions()

    def source(self, name: str, body: dict[str, Any]) -> None:
        super().source(name, body)
        self._wait_for_partitions()

    def _wait_for_partitions(self) -> None:
        """Until this worker has every partition of every source of the case."""
        worker = self.instance.runtime._worker
        topics = {f"events.{name}" for name in self._sources}

        def all_there() -> bool:
            tasks = self.instance.runtime.ask(lambda engine: set(engine.tables)).result(60)
            return topics <= {task.topic for task in tasks} and worker.ready

        wait_until(all_there)

    def send_aborted(self, source: str, key: bytes | None, value: bytes) -> None:
        if self._producer is None:
            self._producer = KafkaProducer(
                bootstrap_servers=self._bootstrap,
                transactional_id=f"{self.prefix}aborting",
                retry_backoff_ms=5,
            )
            self._producer.init_transactions()
        self._producer.begin_transaction()
        self._producer.send(f"{self.prefix}events.{source}", value, key, partition=0)
        self._producer.flush()
        self._producer.abort_transaction()

    def skip_offsets(self, source: str, upto: int) -> None:
        """Aborted transactions leave holes: two offsets each, the message and the mark."""
        partition = TopicPartition(f"events.{source}", 0)
        while self.instance.log.end_offsets([partition])[partition] < upto:
            self.send_aborted(source, b"hole", b"{}")

    def lose_input(self, source: str) -> None:
        (end,) = self.instance.log.end_offsets([TopicPartition(f"events.{source}", 0)]).values()
        with closing(KafkaAdminClient(bootstrap_servers=self._bootstrap)) as admin:
            admin.delete_records({ClusterPartition(f"{self.prefix}events.{source}", 0): end})

    def records(self) -> list[tuple[str, bytes | None, bytes]]:
        self._read += self._new_records()
        mine = self.mine(self._read)
        self.check_answers(mine)
        return mine

    def clear(self) -> None:
        super().clear()
        self._read.clear()

    def _new_records(self) -> Iterator[tuple[str, bytes | None, bytes]]:
        partitions = [
            ClusterPartition(self.prefix + topic, number)
            for topic in TOPICS
            for number in range(OUTPUT_PARTITIONS)
        ]
        if not self._assigned:
            self._consumer.assign(partitions)
            self._assigned = True
        ends = self._ends.end_offsets(partitions)
        while any(self._consumer.position(partition) < end for partition, end in ends.items()):
            for found in self._consumer.poll(timeout_ms=20).values():
                for record in found:
                    yield record.topic.removeprefix(self.prefix), record.key, record.value
