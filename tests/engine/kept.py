"""Histories that few random ones are like: what they find needs several things in a row at their times."""

from __future__ import annotations

from typing import Any

from tests.cases.driver import Mode
from tests.engine.histories import History, Operation

LINE, PLANE = ("x",), ("x", "y", "k")
IN: Operation = ("event", ("a", 0, {"x": 0}))
OUT: Operation = ("event", ("a", 0, {"x": 3}))
EVERYWHERE: dict[str, Any] = {"any": [{}]}
MIDDLE = {"any": [{"x": {"gte": 1, "lte": 1}}]}


def _put(id: str = "p", *, wait: int | None = None, **fields: Any) -> Operation:
    where = {"any": [{"x": {"gte": 0, "lte": 1}}]}
    return "put", {"id": id, "where": where, "for": wait, **fields}


def _kept(*operations: Operation, mode: Mode = "one", names: tuple[str, ...] = LINE) -> History:
    return History(names, 1000, mode, list(operations))


def _wait(ms: int) -> Operation:
    return "pass", ms


KEPT = (
    # A wait is made shorter in the millisecond that it began.
    _kept(IN, _put(wait=3), _put(where=EVERYWHERE, wait=1), IN, _wait(1), ("remove", "a")),
    # A silence ends in the batch in which the wait began that it breaks.
    _kept(
        *(("source", {"stale_after": 3}), _put(wait=5)),
        *(IN, _wait(3), IN, _wait(2), IN, _wait(3), IN),
        mode="batch",
    ),
    # A wait could not end in a silence that is none any more.
    _kept(("source", {"stale_after": 1}), _put(wait=2), IN, _wait(2), ("source", {})),
    # A cooldown is taken away.
    _kept(_put(cooldown=3), IN, OUT, _put(), IN),
    # One cooldown begins, and a wait ends with it.
    _kept(_put(cooldown=2), IN, OUT, IN, _wait(1), _wait(1), _wait(1)),
    # A query takes the slot of another that had a cooldown.
    _kept(_put(cooldown=3), IN, OUT, ("delete", "p"), _put("q", cooldown=3), IN),
    # Who is ignored stays so when the query ignores nobody any more, and after a restart.
    _kept(IN, _put(initial="ignore"), _put(initial="emit"), ("restart", True), OUT),
    # Who is ignored stays so when all but where changes.
    _kept(IN, _put(initial="ignore"), _put(initial="ignore", keep=EVERYWHERE)),
    # A member leaves where and then, apart from that, keep.
    _kept(
        _put(keep={"any": [{"x": {"gte": 0, "lte": 2}}]}),
        *(IN, ("event", ("a", 0, {"x": 2})), OUT),
    ),
    # The first ts is behind the time that it was.
    _kept(("event", ("a", None, {"x": 0})), ("event", ("a", -3, {"x": 0})), _put()),
    # The first ts is behind the time that it has become since the last message.
    _kept(
        *(_put(wait=3), ("remove", "a"), _wait(1)),
        *(("event", ("a", -3, {"x": 0})), ("event", ("a", 3, {"x": 3}))),
        mode="batch",
    ),
    # Several changes of one query, and several queries, in one group of commands.
    _kept(
        IN,
        ("commands", [_put(), _put(on=["match"]), _put("q"), _put()]),
        ("commands", [("delete", "p"), ("delete", "q")]),
    ),
    # A late event under every policy, alone in renewing a life.
    *(
        _kept(
            *(("source", {"late": late, "stream_ttl": 3}), _put()),
            *(IN, _wait(2), ("event", ("a", -1, {"x": 0})), _wait(1), ("event", ("a", -3, {"x": 0}))),
            *(("restart", False), _wait(1), _wait(1), _wait(1)),
        )
        for late in ("no_border", "process", "reject")
    ),
    # A query is changed while a wait of its cannot end for silence.
    _kept(("source", {"stale_after": 2}), _put(wait=3), IN, _wait(3), _put(wait=3, cooldown=2)),
    # Waits of one stream end together, more of them than a record holds.
    *(
        _kept(
            *(_put("p", wait=2), _put("q", wait=2), _put("r", wait=2)),
            *(_put(id, wait=wait, cooldown=2) for id, wait in (("p", 2), ("q", None), ("r", None))),
            *(IN, _wait(2), IN, OUT, IN, _wait(3)),
        )._replace(max_ids=max_ids, keys=keys)
        for max_ids in (1, 2, 1000)
        for keys in ({}, {"q": "acme/p", "r": "acme/q"})
    ),
    # The cooldown of a silent stream is over: what changes its query then does not make its wait one that has
    # ended before, but one that has nothing to wait for ends.
    *(
        _kept(
            *(("source", {"stale_after": 2}), _put(cooldown=2), IN, OUT, IN, _wait(2), change),
            *(_wait(1), ("event", ("b", 0, {})), ("event", ("a", 0, {"x": 1})), OUT),
        )
        for change in (
            *(("patch", ("p", {"tags": {"a": "b"}})), ("patch", ("p", {"on": ["enter", "leave"]}))),
            *(
                _put(cooldown=1),
                _put(cooldown=5),
                _put(wait=1, cooldown=2),
                _put(wait=1),
                _put(),
                _put(once=True),
            ),
        )
    ),
    *(
        _kept(
            *(("source", {"stale_after": 2}), _put(cooldown=9, wait=wait), IN, _wait(wait or 1), IN, OUT, IN),
            *(_wait(passed), _put(wait=wait), _wait(1), _wait(3), IN, _wait(3), IN),
        )
        for wait in (None, 1, 3)
        for passed in (1, 2, 3)
    ),
    # A stream ends and begins in one batch, and nothing was carried or late before.
    _kept(
        *(("source", {"missing": "carry"}), _put()),
        *(IN, ("remove", "a"), ("event", ("a", 0, {})), ("event", ("a", 0, {"x": 0}))),
        mode="batch",
    ),
    _kept(
        *(_put(), IN, ("remove", "a")),
        *(("event", ("a", None, {"x": 0})), ("event", ("a", -1, {"x": 0}))),
        mode="batch",
    ),
    # A stream jumps over where within keep; and from nowhere.
    _kept(
        _put(where=MIDDLE, keep={"any": [{"x": {"gte": 0, "lte": 3}}]}, on=["enter", "leave", "cross"]),
        *(("event", ("a", 0, {"x": x})) for x in (1, 0, 3)),
    ),
    _kept(_put(where=MIDDLE, on=["cross"]), ("event", ("a", 0, {})), OUT, IN),
    # A stream jumps over where, and its category holds at one end.
    _kept(
        _put(where={"any": [{"x": {"gte": 1, "lte": 1}, "k": {"eq": "tug"}}]}, on=["cross"]),
        *(("event", ("a", 0, {"x": x, "k": k})) for x, k in ((0, "cargo"), (3, "tug"), (0, "cargo"))),
        names=PLANE,
    ),
    # A second life within a batch knows no ids of the first.
    _kept(
        *(("source", {"dedup": {"by": "id"}}), _put()),
        *(
            ("event", ("a", 0, {"x": 0, "id": "i"})),
            ("remove", "a"),
            ("event", ("a", 0, {"x": 0, "id": "i"})),
        ),
        mode="batch",
    ),
)
