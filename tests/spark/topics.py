"""Output topics on the real broker, written to as the service does: in transactions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 2
TIMEOUT_S = 30.0


class Topics:
    """The topics ``matches`` and ``borders`` under a prefix of their own."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.bootstrap = bootstrap
        self.prefix = prefix
        self._writers: list[Producer] = []
        admin = AdminClient({"bootstrap.servers": bootstrap})
        wanted = [NewTopic(prefix + topic, PARTITIONS, 1) for topic in ("matches", "borders")]
        for created in admin.create_topics(wanted).values():
            created.result(TIMEOUT_S)
        self.writer()

    def writer(self) -> Producer:
        """A transactional producer of its own: its transactions overlap those of others."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": f"{self.prefix}{len(self._writers)}",
                "linger.ms": 0,
            }
        )
        self._writers.append(producer)
        producer.init_transactions(TIMEOUT_S)
        return producer

    @contextmanager
    def transaction(self, *, abort: bool = False) -> Iterator[None]:
        """What is sent inside is committed together at the end, or with ``abort`` written and taken back."""
        self._writers[0].begin_transaction()
        yield
        assert self._writers[0].flush(TIMEOUT_S) == 0
        if abort:
            self._writers[0].abort_transaction(TIMEOUT_S)
        else:
            self._writers[0].commit_transaction(TIMEOUT_S)

    def send(self, topic: str, *records: dict[str, Any], by: Producer | None = None) -> None:
        """Sends records under their stream's key, in the open transaction."""
        for record in records:
            key, value = record["stream_id"].encode(), json.dumps(record).encode()
            self.send_bytes(topic, value, key=key, by=by)

    def send_bytes(
        self, topic: str, value: bytes | None, *, key: bytes = b"x", by: Producer | None = None
    ) -> None:
        (by or self._writers[0]).produce(self.prefix + topic, value=value, key=key)

    def close(self) -> None:
        """Forgets the producers, which ends them: none may outlive the broker."""
        self._writers.clear()
