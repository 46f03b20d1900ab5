"""The real data sets with their checked answers, as any driver plays them."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
from collections.abc import Iterator
from typing import Any

from tests.cases.driver import Driver
from tests.shared import SHARED

SETS: dict[str, dict[str, Any]] = json.loads((SHARED / "data" / "sets.json").read_text())


def events(name: str) -> Iterator[tuple[str, bytes]]:
    """(stream id, event as JSON) row by row; an empty cell is an absent attribute."""
    with gzip.open(SHARED / "data" / SETS[name]["events"], "rt", newline="") as lines:
        for row in csv.DictReader(lines):
            stream_id = row.pop("stream_id")
            cells = ",".join(f'"{column}":{cell}' for column, cell in row.items() if cell)
            yield stream_id, f'{{"stream_id":"{stream_id}",{cells}}}'.encode()


def json_lines(file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (SHARED / "data" / file).read_text().splitlines()]


def _answers(name: str) -> dict[str, Any]:
    answers: dict[str, Any] = json.loads((SHARED / "data" / f"expected_{name}.json").read_text())["policies"]
    return answers


def policies(name: str) -> list[str]:
    """The `late` policies that a set has answers for."""
    return [policy.removeprefix("late: ") for policy in _answers(name)]


def expected(name: str, late: str) -> dict[str, Any]:
    answers: dict[str, Any] = _answers(name)[f"late: {late}"]
    return answers


def border_lines(name: str) -> list[str]:
    """The checked border list under the default policies, without its header."""
    with gzip.open(SHARED / "data" / f"borders_{name}.csv.gz", "rt", newline="") as lines:
        return lines.read().splitlines()[1:]


class Play:
    """Plays a set through a driver; knows afterwards which message and command stands for which line."""

    def __init__(self, name: str, late: str) -> None:
        self.name = name
        self.late = late
        self.row_of: dict[tuple[str, int], str] = {}
        self.rows = 0

    def run(self, driver: Driver, source: str, *, flush_every: int, restart_every: int | None = None) -> None:
        """Sends everything; every command is made to hold before the next event is sent."""
        spec = SETS[self.name]
        driver.source(source, {"attributes": spec["attributes"], "late": self.late})
        status, offsets = driver.bulk([{**query, "source": source} for query in json_lines(spec["queries"])])
        assert status < 300
        self.row_of.update({("command", offset): "registration" for offset in offsets})
        commands = json_lines(spec["commands"]) if "commands" in spec else []
        for row, (stream_id, value) in enumerate(events(self.name)):
            while commands and commands[0]["before_row"] == row:
                driver.flush()
                self._command(driver, source, commands.pop(0))
            self.row_of[driver.send(source, stream_id.encode(), value)] = str(row)
            if row % flush_every == flush_every - 1:
                driver.flush()
            if restart_every and row % restart_every == restart_every - 1:
                driver.flush()
                driver.restart()
            self.rows = row + 1
        driver.flush()
        assert not commands

    def _command(self, driver: Driver, source: str, step: dict[str, Any]) -> None:
        label = f"c{step['n']}"
        if step["op"] == "tombstone":
            self.row_of[driver.send(source, step["stream_id"].encode(), None)] = label
            driver.flush()
            return
        if "query" in step:
            step = {**step, "query": {**step["query"], "source": source}}
        status, reason, offset = driver.command(step["op"], step)
        assert status < 300, reason
        if offset is not None:
            self.row_of["command", offset] = label

    def answers(self, records: list[tuple[str, bytes | None, bytes]]) -> dict[str, Any]:
        """Totals and digests in the form of the expected files, and the border list."""
        matches: dict[str, set[str]] = {}
        borders: list[tuple[str, str, int, str]] = []
        counts = {"matches": 0, "refused": 0, "late_events": 0, "enters": 0, "leaves": 0}
        per_query: dict[str, list[int]] = {}
        for topic, _, value in records:
            record = json.loads(value)
            origin = record["origin"]
            place = (
                ("command", origin["command"]) if "command" in origin else (origin["topic"], origin["offset"])
            )
            at = self.row_of[place]
            if topic == "matches":
                matches.setdefault(at, set()).update(record["queries"])
                for id in record["queries"]:
                    per_query.setdefault(id, [0, 0, 0])[0] += 1
                counts["matches"] += len(record["queries"])
                counts["late_events"] += bool(record.get("late"))
            elif topic == "borders":
                leave, enter = record["leave"], record["enter"]
                for place_of_kind, ids in ((1, enter), (2, leave)):
                    for id in ids:
                        per_query.setdefault(id, [0, 0, 0])[place_of_kind] += 1
                counts["enters"] += len(enter)
                counts["leaves"] += len(leave)
                head = f"{at},{record['reason']}"
                tail = f"{record['stream_id']},{record['seq']},{' '.join(leave)},{' '.join(enter)}"
                borders.append((head, record["stream_id"], record["seq"], f"{head},{tail}"))
            else:
                counts["refused"] += 1
        # Records of a large command come in portions, with events of other streams in between.
        rank = {label: place for place, label in enumerate(dict.fromkeys(self.row_of.values()))}
        borders.sort(key=lambda border: rank[border[0].partition(",")[0]])
        lines = [line for *_, line in _in_stream_order(borders)]
        match_digest = hashlib.sha256()
        for row in range(self.rows):
            match_digest.update(f"{row}:{','.join(sorted(matches.get(str(row), ())))}\n".encode())
        return {
            **counts,
            "border_records": len(lines),
            "events": self.rows,
            "events_with_a_match": len(matches),
            "match_sha256": match_digest.hexdigest(),
            "border_sha256": hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest(),
            "per_query_match_enter_leave": per_query,
            "lines": lines,
        }


def _in_stream_order(borders: list[tuple[str, str, int, str]]) -> list[tuple[str, str, int, str]]:
    """Records of one command stand in order of stream id; the contract leaves that open."""
    ordered: list[tuple[str, str, int, str]] = []
    group: list[tuple[str, str, int, str]] = []
    for border in borders:
        if group and group[-1][0] != border[0]:
            ordered += sorted(group)
            group = []
        group.append(border)
    return ordered + sorted(group)


def compare(name: str, late: str, answers: dict[str, Any]) -> None:
    """Asserts totals first, then the list line by line, then the digests."""
    want = expected(name, late)
    keys = ["events", "matches", "events_with_a_match", "refused", "border_records", "enters", "leaves"]
    if late == "no_border":
        keys.append("late_events")
        assert answers["lines"] == border_lines(name)
    assert {key: answers[key] for key in keys} == {key: want[key] for key in keys}
    silent = {id for id, counts in want["per_query_match_enter_leave"].items() if counts == [0, 0, 0]}
    got = answers["per_query_match_enter_leave"] | {id: [0, 0, 0] for id in silent}
    assert got == want["per_query_match_enter_leave"]
    assert answers["match_sha256"] == want["match_sha256"]
    assert answers["border_sha256"] == want["border_sha256"]
