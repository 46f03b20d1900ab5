"""The engine and the oracle side by side: every operation goes to both, and what they say is compared.

Times, values, streams and queries are few, so that ties at the moment when something is due, touching borders
and second lives come up all the time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from service.engine.engine import EngineLimits
from service.language import Limits, parse_query, parse_source, patch_body, query_body
from service.model import Initial, Kind, Query, Refusal
from tests.cases.driver import Mode
from tests.cases.engine_driver import EngineDriver
from tests.engine.reference import Border, Reference

BEGIN = 1_700_000_000_000
"""Wall time at the beginning, ms; the driver judges bodies as of then."""

STREAMS = ["a", "b", "c"]
KINDS = ["tug", "cargo", "yacht"]
BOTH = {Kind.ENTER, Kind.LEAVE}

Operation = tuple[str, Any]

# ---- what can be done

GRID = st.integers(0, 3)
NUMBER = (
    st.tuples(GRID, GRID)
    .map(sorted)
    .flatmap(
        lambda ends: st.sampled_from(
            [
                {"gte": ends[0], "lte": ends[1]},
                {"gte": ends[0], "lt": ends[1] + 1},
                {"gt": ends[0] - 0.5, "lt": ends[1] + 0.5},
                {"gte": ends[0]},
                {"lt": ends[1] + 1},
            ]
        )
    )
)
CATEGORY = st.one_of(
    st.sampled_from(KINDS).map(lambda kind: {"eq": kind}),
    st.sampled_from(KINDS).map(lambda kind: {"ne": kind}),
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=2, unique=True).map(lambda kinds: {"in": kinds}),
)
ON = st.sampled_from(
    [["match", "enter", "leave"]] * 3
    + [["enter", "leave"], ["enter", "leave", "cross"], ["match", "enter", "leave", "cross"]] * 2
    + [["match"], ["enter"], ["match", "leave"], ["cross"]]
)
WAIT = st.sampled_from([None, 1, 2, 3, 5])


def _region(names: list[str]) -> st.SearchStrategy[Any]:
    bounds = {name: CATEGORY if name == "k" else NUMBER for name in names}
    bounded = st.fixed_dictionaries({"x": bounds.pop("x")}, optional=bounds)
    conjunct = _weighted(bounded, bounded, bounded, st.fixed_dictionaries({}, optional=bounds))
    return st.lists(conjunct, min_size=1, max_size=2).map(lambda conjuncts: {"any": conjuncts})


def _weighted(*strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Any of them, those given several times more often; ``one_of`` takes each once."""
    return st.sampled_from(strategies).flatmap(lambda chosen: chosen)


def _wider(body: dict[str, Any]) -> list[dict[str, Any] | None]:
    """What ``keep`` may be for a ``where``: nothing, everything, the same, each number two wider."""
    widened = [
        {
            name: {"gte": bound["gte"] - 2, "lte": bound["lte"] + 2} if "lte" in bound else bound
            for name, bound in conjunct.items()
        }
        for conjunct in body["any"]
    ]
    return [None, None, None, {"any": [{}]}, body, {"any": widened}, {"any": widened}]


@st.composite
def _queries(draw: st.DrawFn, bodies: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    body = draw(bodies)
    return {**body, "keep": draw(st.sampled_from(_wider(body["where"])))}


def histories(names: list[str], most: int) -> st.SearchStrategy[list[Operation]]:
    """Policies, two queries, then up to ``most`` operations; ``names`` are the attributes of the source."""
    one, policies, query = _operations(names)
    begin = st.tuples(policies, query, query).map(list)
    rest = st.integers(0, most).flatmap(lambda length: st.lists(one, min_size=length, max_size=length))
    return st.tuples(begin, rest).map(lambda both: both[0] + both[1])


def _operations(names: list[str]) -> tuple[st.SearchStrategy[Operation], ...]:
    """Every cause, events by far the most; a change of policies; a query."""
    where = _region(names)
    fields = {
        "where": where,
        "on": ON,
        "initial": st.sampled_from(["emit", "emit", "ignore"]),
        "for": WAIT,
        "cooldown": WAIT,
        "once": st.sampled_from([False, False, False, True]),
        "enabled": st.sampled_from([True, True, False]),
        "expires_at": st.sampled_from([None, None, None, 1, 4]),
        "select": st.sampled_from([[], names[:1], names]),
    }
    ids = st.sampled_from(["p", "q", "r"])
    query = _queries(st.fixed_dictionaries({"id": ids, **fields}))
    patch = st.one_of(
        *(value.map(lambda one, name=name: {name: one}) for name, value in fields.items()),
        where.map(lambda keep: {"keep": keep}),
        st.just({"keep": None}),
        st.just({"tags": {"a": "b"}}),
    )
    values = {name: st.sampled_from(KINDS) if name == "k" else GRID for name in names}
    event = st.tuples(
        st.sampled_from(STREAMS),
        st.sampled_from([None, -3, -1, 0, 0, 0, 0, 1, 3]),
        st.fixed_dictionaries({}, optional=values),
    )
    policies = st.fixed_dictionaries(
        {},
        optional={
            "missing": st.just("carry"),
            "late": st.sampled_from(["no_border", "process", "reject"]),
            "stream_ttl": st.sampled_from([2, 4]),
            "stale_after": st.sampled_from([1, 2, 3]),
            "grown": st.just(True),
        },
    )
    change_source, put = st.tuples(st.just("source"), policies), st.tuples(st.just("put"), query)
    any_of_them = _weighted(
        *[st.tuples(st.just("event"), event)] * 10,
        *[st.tuples(st.just("pass"), st.sampled_from([1, 1, 1, 2, 3, 5]))] * 5,
        put,
        st.tuples(st.just("events"), st.lists(event, min_size=2, max_size=4)),
        st.tuples(st.just("patch"), st.tuples(ids, patch)),
        st.tuples(st.just("remove"), st.sampled_from(STREAMS)),
        st.tuples(st.just("delete"), ids),
        st.tuples(st.just("quarantine"), ids),
        change_source,
        *[st.tuples(st.just("tell"), st.none())] * 2,
        st.tuples(st.just("restart"), st.booleans()),
        st.tuples(st.just("reassign"), st.booleans()),
        st.tuples(st.just("crash"), event),
    )
    return any_of_them, change_source, put


# ---- doing it


class World:
    """``mode``: every operation is processed at once ("one"), only where it must be ("batch"), or with a
    restart after each ("restart"). ``portion``: so many records of a command are written with it, and so many
    more by each operation ``tell``; without, all at once."""

    def __init__(
        self, names: list[str], mode: Mode, max_ids: int = 1000, *, portion: int | None = None
    ) -> None:
        self._types = {name: "category" if name == "k" else "number" for name in names}
        limits = EngineLimits(ids=max_ids)
        self.driver = EngineDriver(limits._replace(portion=portion) if portion else limits)
        self.driver.clock(BEGIN)
        self._mode = mode
        #: else what a query asks for may have changed since its records were caused
        self._folds = mode != "batch" and portion is None
        self._now = BEGIN
        body: dict[str, Any] = {"attributes": self._types}
        self._source(body)
        self.reference = Reference(parse_source("s", body), BEGIN)
        self._seen = 0
        self._matches: list[Any] = []
        self._borders: list[Border] = []
        self._fold: dict[str, set[str]] = {}
        self._seq: dict[str, int] = {}
        self._balanced: set[str] = set()

    def _source(self, body: dict[str, Any]) -> None:
        self._sources = {"s": parse_source("s", body)}
        self.driver.source("s", body)

    def do(self, operation: str, argument: Any) -> None:
        if operation not in ("event", "events", "pass", "remove"):
            self.driver.flush()
        getattr(self, f"_do_{operation}")(argument)
        if self._mode != "batch":
            self.driver.flush()
        if self._mode == "restart":
            self.driver.restart(compacted=True)

    def _do_event(self, event: tuple[str, int | None, dict[str, Any]]) -> None:
        self._send([event], array=False)

    def _do_events(self, events: list[tuple[str, int | None, dict[str, Any]]]) -> None:
        self._send(events, array=True)

    def _send(self, events: list[tuple[str, int | None, dict[str, Any]]], *, array: bool) -> None:
        bodies = [
            {"stream_id": stream_id, **values, **({} if lead is None else {"ts": self._now + lead})}
            for stream_id, lead, values in events
        ]
        value = json.dumps(bodies if array else bodies[0]).encode()
        _, offset = self.driver.send("s", None if array else events[0][0].encode(), value)
        for row, (stream_id, lead, values) in enumerate(events):
            ts = None if lead is None else self._now + lead
            self.reference.event((offset, row), stream_id, ts, values)

    def _do_crash(self, event: tuple[str, int | None, dict[str, Any]]) -> None:
        self.driver.arm_crash()
        self._send([event], array=False)
        self.driver.crash()
        self.driver.flush()

    def _do_remove(self, stream_id: str) -> None:
        _, offset = self.driver.send("s", stream_id.encode(), None)
        self.reference.remove((offset, 0), stream_id)

    def _do_pass(self, passed_ms: int) -> None:
        now = self._now + passed_ms
        if any(query.expires_at and query.expires_at <= now for query in self.reference.queries.values()):
            self.driver.flush()
            self.driver.clock(now)
            self.driver.flush()
        self.driver.clock(now)
        self._now = now
        self.reference.wait_until(now)

    def _absolute(self, body: Mapping[str, Any]) -> dict[str, Any]:
        expires_in = body.get("expires_at")
        return {**body, "expires_at": self._now + expires_in} if expires_in else dict(body)

    def _do_put(self, body: dict[str, Any]) -> None:
        query = {**self._absolute(body), "source": "s"}
        self._judge("put", {"query": query}, query)

    def _do_patch(self, argument: tuple[str, dict[str, Any]]) -> None:
        id, changes = argument
        changes = self._absolute(changes)
        old = self.reference.queries.get(id)
        if old is None:
            assert self.driver.command("patch", {"id": id, "set": changes})[0] == 404
            return
        self._judge("patch", {"id": id, "set": changes}, patch_body(query_body(old), changes))

    def _judge(self, op: str, step: dict[str, Any], whole: dict[str, Any]) -> None:
        status, reason, offset = self.driver.command(op, step)
        try:
            query: Query = parse_query(whole, self._sources, id=None, now_ms=BEGIN, limits=Limits())
        except Refusal as refusal:
            assert (status, reason) == (422, refusal.reason)
            return
        assert status == 200, reason
        if offset is not None:
            self.reference.put(("command", offset), query)

    def _do_delete(self, id: str) -> None:
        quarantined = id in self.driver.engine.catalog.quarantined
        status, _, offset = self.driver.command("delete", {"id": id})
        assert status == (200 if quarantined or id in self.reference.queries else 404)
        if id in self.reference.queries:
            self.reference.delete(("command", offset), id)

    def _do_quarantine(self, id: str) -> None:
        if id in self.reference.queries:
            body = {"op": "query", "id": id, "query": {"id": id, "source": "s", "where": "nowhere > 1"}}
            self.reference.delete(("command", self.driver.entry(body)), id, "quarantined")
            assert id in self.driver.engine.catalog.quarantined

    def _do_source(self, policies: dict[str, Any]) -> None:
        policies = dict(policies)
        grown = {"z": "number"} if policies.pop("grown", False) else {}
        self._source({"attributes": {**self._types, **grown}, **policies})
        self.reference.change_source(self._sources["s"])
        self.reference.wait_until(self._now)

    def _do_tell(self, _: None) -> None:
        self.driver.tell()

    def settle(self) -> None:
        """Writes all that is owed."""
        self.driver.flush()
        while self.driver.engine.owes:
            self.driver.tell()

    def _do_restart(self, compacted: bool) -> None:
        self.driver.restart(compacted=compacted)

    def _do_reassign(self, resumed: bool) -> None:
        self.driver.reassign(resumed=resumed)

    # ---- comparing

    def check(self) -> None:
        """All that has been written is the oracle's, balances, and is what the engine answers. What is still
        owed is what the oracle has besides."""
        self.driver.flush()
        self._read()
        owed = self.check_records()
        reference, engine = self.reference, self.driver.engine
        for stream_id in STREAMS:
            view = engine.stream("s", stream_id)
            assert (view is None) == (stream_id not in reference.streams)
            members = reference.members(stream_id)
            assert (view.inside if view else []) == sorted(members)
            if self._folds:
                # Of a query that asks for one of the two kinds there is nothing to fold.
                self._fold[stream_id] = set(filter(self._both, self._fold.get(stream_id, ())))
                assert self._fold[stream_id] == set(filter(self._both, members))
            if view:
                assert view.seq == reference.streams[stream_id].seq - owed[stream_id]
        self._balanced = set(filter(self._both, reference.queries))
        for id, query in reference.queries.items():
            inside = reference.inside(id)
            assert engine.members(id) == inside
            if not query.stores and query.initial is Initial.EMIT and not self._ignored(id):
                holds = [s for s, stream in reference.streams.items() if stream.last in query.region]
                assert inside == (sorted(holds) if query.enabled else [])

    def _ignored(self, id: str) -> bool:
        return any(stream.pair(id).ignored for stream in self.reference.streams.values())

    def check_records(self) -> dict[str, int]:
        """Returns how many records each stream is owed."""
        assert self._matches == self.reference.matches
        written, caused = self._by_stream(self._borders), self._by_stream(self.reference.borders)
        for name in STREAMS:
            assert written[name] == caused[name][: len(written[name])]
        owed = {name: len(caused[name]) - len(written[name]) for name in STREAMS}
        assert sum(owed.values()) == sum(table.owed.records for table in self.driver.engine.tables.values())
        return owed

    @staticmethod
    def _by_stream(borders: list[Border]) -> dict[str, list[Border]]:
        return {name: [border for border in borders if border.stream == name] for name in STREAMS}

    def _read(self) -> None:
        records = self.driver.records()
        for topic, _, value in records[self._seen :]:
            record = json.loads(value)
            if topic == "matches":
                self._take_match(_label(record), record)
            elif topic == "borders":
                self._take(record)
        self._seen = len(records)

    def _take_match(self, label: Any, record: dict[str, Any]) -> None:
        """Queries that select other attributes have a record of their own; to the oracle they are one."""
        matched = record["queries"]
        if self._matches and self._matches[-1][0] == label:
            matched = sorted(self._matches.pop()[2] + matched)
        self._matches.append((label, record["stream_id"], matched, record.get("late", False)))

    def _take(self, record: dict[str, Any]) -> None:
        """Folds one border record as a consumer would, who knows nothing but the records."""
        names = ("stream_id", "seq", "ts", "reason", "leave", "enter", "cross")
        border = Border(_label(record), *(record[name] for name in names))
        self._borders.append(border)
        if not self._folds:
            return
        inside = self._fold.setdefault(border.stream, set())
        assert border.seq == self._seq.get(border.stream, 0) + 1 or (border.seq == 1 and not inside)
        self._seq[border.stream] = border.seq
        assert border.leave or border.enter or border.cross
        # What a leave must find inside is told by what the query asked for before the command that caused it.
        assert self._balanced & set(border.leave) <= inside
        inside -= set(border.leave)
        assert not set(filter(self._both, border.enter)) & inside
        inside |= set(border.enter)

    def _both(self, id: str) -> bool:
        query = self.reference.queries.get(id)
        return query is not None and query.on >= BOTH


def _label(record: dict[str, Any]) -> Any:
    origin = record["origin"]
    if "timer" in origin:
        return "timer"
    if record.get("reason") == "expired":
        return "expired"
    return ("command", origin["command"]) if "command" in origin else (origin["offset"], origin["row"])
