"""Plays the scenarios of a file, each on a service of its own.

A scenario goes on after a failure, so one run shows all of them: an expectation changes nothing. What nobody
has looked at when the last step is done is a failure too; ``expect: any`` is how a test looks away.

Not for: printing (``report``).
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.engine.commands import Command, DeleteQuery, PatchQuery, PutQuery, PutSource
from service.language import load_json
from service.log.topics import OUTPUTS
from service.model import Refusal
from service.rules.acts import LARGEST_TS, Act, Body, MoveTime, RemoveStream, Restart, Send
from service.rules.collections import PutCollection, put_collection
from service.rules.comparison import Line, compare
from service.rules.document import RuleFileError
from service.rules.expectations import Expected
from service.rules.scenarios import Refused, Scenario, Step, read_scenarios
from service.rules.stage import Stage
from service.tenants import key_of

#: So much is read within seconds; more is no test that a person can follow.
MAX_FILE_BYTES = 1 << 20

Written = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Failure:
    """Something is not as the file says: ``line`` of the step, what was wrong, and a diff."""

    line: int
    what: str
    diff: tuple[Line, ...] = ()


@dataclass(frozen=True, slots=True)
class Crash:
    """The service itself has failed: ``line`` of the step (of the scenario before the first), what was
    raised, and where."""

    line: int
    what: str
    trace: str


@dataclass(frozen=True, slots=True)
class Played:
    """``failures`` until the end, or until the ``crash``."""

    scenario: Scenario
    failures: tuple[Failure, ...]
    seconds: float
    crash: Crash | None = None

    @property
    def passed(self) -> bool:
        return not self.failures and self.crash is None


@dataclass(frozen=True, slots=True)
class FileResult:
    """``error`` where the file is no rule test: then what was played before that is dropped."""

    path: Path
    played: tuple[Played, ...]
    error: RuleFileError | None = None


def play_file(path: Path, *, restarts: bool = False) -> FileResult:
    """Plays a file; ``restarts``: the service starts anew after every step, which may change nothing.

    A mistake in the file is part of the result; raises OSError where it cannot be read, or nothing can be
    written to the folder of temporary files."""
    with path.open("rb") as opened:
        content = opened.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        detail = f"is larger than {MAX_FILE_BYTES} bytes; make it several files"
        return FileResult(path, (), RuleFileError(1, "", detail))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        return FileResult(path, (), RuleFileError(line, "", "is not UTF-8"))
    try:
        scenarios = read_scenarios(text)
        return FileResult(path, tuple(play(scenario, restarts=restarts) for scenario in scenarios))
    except RuleFileError as error:
        return FileResult(path, (), error)


def play(scenario: Scenario, *, restarts: bool = False) -> Played:
    """Plays one scenario. Raises RuleFileError where what it begins with is refused or time would go back,
    OSError as ``play_file``; whatever else the service raises is a crash of this scenario alone."""
    started = time.perf_counter()
    failures: list[Failure] = []
    line, crash = scenario.line, None
    try:
        with Stage(scenario.settings) as stage:
            for body in scenario.begin:
                _begin(stage, body)
            played = _Play(stage, scenario, restarts)
            for step in scenario.steps:
                line = step.line
                failures += played.step(step)
            failures += played.end()
    except (RuleFileError, OSError):
        raise
    except Exception as error:
        crash = Crash(line, f"{type(error).__name__}: {error}", traceback.format_exc())
    return Played(scenario, tuple(failures), time.perf_counter() - started, crash)


def _begin(stage: Stage, body: Body) -> None:
    try:
        stage.command(_command(body))
    except Refusal as refusal:
        found = body.node.reach(refusal.field)
        field = f"{body.node.field}.{refusal.field}" if refusal.field else body.node.field
        raise RuleFileError(found.line, field, f"{refusal.detail} ({refusal.reason})") from None


def _command(body: Body) -> Command:
    """The command as the API makes it. Raises Refusal."""
    key = key_of(body.tenant, body.id or "")
    if body.op == "delete":
        return DeleteQuery(key)
    parsed = load_json(body.body)
    match body.op:
        case "put_source":
            return PutSource(body.id or "", parsed)
        case "patch":
            return PatchQuery(key, parsed)
        case _:
            return PutQuery(body.id, parsed, create_only=body.op == "post", tenant=body.tenant)


class _Play:
    def __init__(self, stage: Stage, scenario: Scenario, restarts: bool) -> None:
        self._stage = stage
        self._scenario = scenario
        self._restarts = restarts
        self._unseen: Written = {topic: [] for topic in OUTPUTS}
        self._since = ""

    def end(self) -> Iterator[Failure]:
        if any(self._unseen[topic] for topic in self._scenario.compared):
            nothing = Expected(0, frozenset(self._scenario.compared), ())
            what = f"at the end: nobody expects what came since {self._since}"
            yield Failure(self._scenario.line, what, tuple(compare(nothing, self._unseen)))

    def step(self, step: Step) -> Iterator[Failure]:
        if step.act is not None:
            yield from self._answer(step)
            self._read(step)
            if self._restarts:
                self._stage.restart()
                self._read(step)
        if step.expected is not None:
            diff = compare(step.expected, self._unseen)
            self._unseen = {topic: [] for topic in OUTPUTS}
            if diff:
                yield Failure(step.line, step.title, tuple(diff))

    def _read(self, step: Step) -> None:
        if not any(self._unseen.values()):
            self._since = f"line {step.line}, {step.title}"
        for topic, records in self._stage.records().items():
            self._unseen[topic] += records

    def _answer(self, step: Step) -> Iterator[Failure]:
        """Does what the step does and judges the answer."""
        assert step.act is not None
        try:
            _do(step.act, self._stage)
        except Refusal as refusal:
            if step.refused is None:
                yield Failure(step.line, f"{step.title}: was refused: {refusal}")
            elif not _is_as(refusal, step.refused):
                yield Failure(
                    step.line, f"{step.title}: was refused otherwise", _refusals(step.refused, refusal)
                )
        else:
            if step.refused is not None:
                yield Failure(step.line, f"{step.title}: was not refused", _refusals(step.refused, None))


def _do(act: Act, stage: Stage) -> None:
    match act:
        case Send(source, key, value, ts):
            stage.send(source, key, value, at_ms=ts)
        case RemoveStream(source, stream_id):
            stage.remove_stream(source, stream_id)
        case Body():
            stage.command(_command(act))
        case PutCollection():
            put_collection(act, stage)
        case MoveTime(ms, is_relative, node):
            wanted_ms = stage.now_ms + ms if is_relative else ms
            if wanted_ms < stage.now_ms:
                raise node.error(
                    f"is before {stage.now_ms}, the time of the steps before; time never goes back"
                )
            if wanted_ms > LARGEST_TS:
                raise node.error(f"leads to {wanted_ms}; no event can have a time beyond {LARGEST_TS}")
            stage.advance(wanted_ms)
        case Restart():
            stage.restart()


def _is_as(refusal: Refusal, wanted: Refused) -> bool:
    return refusal.reason == wanted.reason and wanted.field in (None, refusal.field)


def _refusals(wanted: Refused, found: Refusal | None) -> tuple[Line, ...]:
    field = "" if wanted.field is None else f", field: {wanted.field}"
    lines = [Line("-", f"{{reason: {wanted.reason}{field}}}")]
    if found is not None:
        lines.append(Line("+", f"{{reason: {found.reason}, field: {found.field}}}"))
        lines.append(Line("@", found.detail))
    return tuple(lines)
