"""From produce to committed result, at a given rate: the service against the bare pass-through.

Another process produces events evenly, stamped when they are handed to its producer; an event is done when
the transaction with its results has been committed. The first fifth of the events does not count.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from itertools import cycle, islice

import numpy as np

from service.engine.commands import PutQuery
from service.log.kafka_library import library
from service.log.port import Message
from tests.bench.on_kafka import TOPIC, Bare, Host, Spy, opened, register

_TURN_S = 0.01


def produce(address: str, client: str, prefix: str, made: list[tuple[bytes, bytes]], rate: float) -> None:
    """Appends the events at that many a second, some every ``_TURN_S``."""
    parts = library(client)
    cluster = parts.cluster(
        address,
        topic_prefix=prefix,
        replication=1,
        max_message_bytes=1 << 20,
        timeout_s=20,
        client_options=lambda _: {},
    )
    appender = parts.appender(cluster)
    appender.open()
    began, sent = time.monotonic(), 0
    while sent < len(made):
        due = min(int((time.monotonic() - began) * rate), len(made))
        now_ms = time.time_ns() // 1_000_000
        if due > sent:
            appender.append(TOPIC, [Message(key, value, 0) for key, value in made[sent:due]], now_ms)
            sent = due
        time.sleep(_TURN_S)
    appender.close()


def latency(
    host: Host,
    client: str,
    made: list[tuple[bytes, bytes]],
    registered: list[PutQuery],
    rate: float,
    seconds: float,
    turns: int,
) -> str:
    """A line that says how long events took, through both. They take turns: the percentiles are of all turns,
    as a single stall of a broker is a whole percent of one."""
    some = list(islice(cycle(made), int(rate * seconds)))
    bare, mine = [], []
    for turn in range(turns):
        prefix = f"live-{client}-{turn}"
        bare.append(_counted(_through(host, client, some, rate, f"{prefix}-bare.", None)))
        mine.append(_counted(_through(host, client, some, rate, f"{prefix}-service.", registered)))
    p50, p99 = (np.percentile([np.concatenate(mine), np.concatenate(bare)], q, axis=1) for q in (50, 99))
    by_turn = (
        np.percentile(one, 99) / np.percentile(other, 99) for one, other in zip(mine, bare, strict=True)
    )
    return (
        f"{client} at {rate:,.0f} events/s, ms from produce to committed result, p50 and p99: "
        f"service {p50[0]:.1f} and {p99[0]:.1f}, pass-through {p50[1]:.1f} and {p99[1]:.1f}; "
        f"ratio of p99 {p99[0] / p99[1]:.2f} (by turn {', '.join(f'{ratio:.2f}' for ratio in by_turn)}); "
        f"load {os.getloadavg()[0]:.1f}"
    )


def _counted(ages_ms: list[float]) -> np.ndarray:
    return np.array(ages_ms[len(ages_ms) // 5 :])


def _through(
    host: Host,
    client: str,
    made: list[tuple[bytes, bytes]],
    rate: float,
    prefix: str,
    registered: list[PutQuery] | None,
) -> list[float]:
    """The ages of the events, ms, in their order; ``registered`` None: through the pass-through."""
    if registered is not None:
        register(host, client, registered, prefix)
    log = Spy(host.log(f"{prefix}group", client, prefix), keeps=False)
    if registered is None:
        bare = Bare(log)
        while not bare.started:
            bare.step()
        step = bare.step
    else:
        worker = opened(log)

        def step() -> None:
            worker.step([], timeout_s=1)

    log.ages_ms.clear()
    arguments = (host.broker.address, client, prefix, made, rate)
    producer = multiprocessing.get_context("spawn").Process(target=produce, args=arguments, daemon=True)
    producer.start()
    while len(log.ages_ms) < len(made):
        assert not producer.exitcode, "the producer has failed"
        step()
    producer.join()
    log.close()
    return log.ages_ms
