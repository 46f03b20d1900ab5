"""Cases over HTTP on the embedded log."""

from __future__ import annotations

from pathlib import Path

from service.log.port import Log, TopicPartition
from service.log.sqlite import SqliteLog
from service.settings import Settings
from tests.cases.driver import Mode
from tests.cases.http_driver import HttpDriver


class SqliteDriver(HttpDriver):
    def __init__(self, file: Path, mode: Mode) -> None:
        self._file = file
        super().__init__(mode, Settings(log=f"sqlite:{file}"))

    def make_log(self) -> Log:
        return SqliteLog(self._file, clock_ms=lambda: self.now)

    def records(self) -> list[tuple[str, bytes | None, bytes]]:
        found = []
        for topic in ("dead_letter", "matches", "borders"):
            after = 0
            while True:
                records, next_after = self.instance.runtime.read(topic, after, 1000)
                if not records:
                    break
                found += [(topic, record.key, record.value or b"") for record in records]
                after = next_after
        mine = self.mine(found)
        self.check_answers(mine)
        return mine

    def lose_input(self, source: str) -> None:
        topic = f"events.{source}"
        (end,) = self.instance.log.end_offsets([TopicPartition(topic, 0)]).values()
        self.instance.log.trim(topic, end)

    def skip_offsets(self, source: str, upto: int) -> None:
        """Offsets of this log have no holes: messages of no source stand for those that were lost."""

    def send_aborted(self, source: str, key: bytes | None, value: bytes) -> None:
        """This log has no transactions of producers: what is aborted was never there."""
