"""The pen of the command log on Kafka: whoever holds it appends commands, and knows that nobody else has.

Idea: the command topic has a ``transactional.id`` of its own, its name in the cluster, whichever worker
writes. Taking it fences the worker that held it and ends what that has left open; then the end of the log is
looked at. From there on the holder knows the end without looking, until it is fenced itself, which it learns
when it writes: a fenced transaction comes to nothing. So an append is compared with the end of the log and
written as one act, and a worker that writes alone pays nothing for it.

Manners: while another's transaction on the command log is open nobody takes the pen from it, until nothing
has been added to it for as long as the cluster may take to answer: then the other is dead or stands still.
Nobody waits here: LogMoved says that it is to be tried again.

Not for: what is written by others than workers, under other ids; that is seen by whoever takes the pen.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from service.log import topics
from service.log.kafka_library import Cluster, OutcomeUnknown, Placed, Transactions
from service.log.port import LogError, LogFenced, LogMoved, TopicPartition

COMMANDS = TopicPartition(topics.COMMANDS, 0)
LASTS_S = 300.0
"""The longest that a transaction may take: a request is judged while it is written. What a dead worker leaves
open holds nobody back, since whoever writes takes the pen from it."""


class Pen:
    """See the module. ``transactions`` are those of the command topic's id. ``end`` is where the log has come
    to as far as this worker has written it, or seen it when it took the pen."""

    def __init__(self, cluster: Cluster, transactions: Transactions) -> None:
        self._cluster = cluster
        self._transactions = transactions
        #: where an open transaction of another begins, where it has come to, and when that was seen first
        self._other = (-1, -1, 0.0)
        self.end = 0

    def close(self) -> None:
        self._transactions.close()
        self.end = 0

    def append(self, messages: Iterable[Placed], after: int, ts: int) -> list[int]:
        """As ``port.Log.append_commands``. ``ts`` stamps the messages, ms since 1970."""
        if not self._transactions.held:
            self._let_finish()
            self._take()
        if after < self.end:
            raise LogMoved(f"the command log has come to {self.end}")
        try:
            offsets = self._transactions.append(messages, ts)
        except OutcomeUnknown as unknown:
            offsets = self._found(unknown)
        except LogFenced as fenced:
            raise LogMoved(f"another worker writes commands ({fenced})") from fenced
        if offsets:
            self.end = max(self.end, offsets[-1] + 1)
        return offsets

    def _let_finish(self) -> None:
        """Raises LogMoved while another's transaction is open, unless it has not grown for too long."""
        end = self._end(committed=False)
        stable = self._end(committed=True)  # looked at later: it is behind only where one is open
        if stable >= end:
            return
        now = time.monotonic()
        if self._other[:2] != (stable, end):
            self._other = stable, end, now
        if now - self._other[2] < self._cluster.timeout_s:
            raise LogMoved("another worker is writing commands")

    def _take(self) -> None:
        try:
            self._transactions.open()
            self.end = self._end(committed=True)
        except LogError as error:
            self._transactions.close()  # a pen without a look at the end is none
            if isinstance(error, LogFenced):
                raise LogMoved(f"another worker takes over the command log ({error})") from error
            raise

    def _found(self, unknown: OutcomeUnknown) -> list[int]:
        """The offsets of a transaction of unknown outcome, if it has been committed. Raises LogMoved where it
        has not been, ``unknown`` where that cannot be found out now."""
        try:
            self._take()  # what was begun under the id has ended then, one way or the other
            last = unknown.offsets[-1:]
            committed = [one.offset for at in last for one in self._cluster.records(COMMANDS, at, at + 1)]
        except LogError as error:
            raise unknown from error
        if committed != last:
            raise LogMoved("another worker has taken over the command log") from unknown
        return unknown.offsets

    def _end(self, *, committed: bool) -> int:
        return self._cluster.ends([COMMANDS], committed=committed)[COMMANDS]
