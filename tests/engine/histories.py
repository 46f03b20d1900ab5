"""Random histories: everything that can happen to a source, its streams and its queries, in any order.

Each history draws first what it is about: half of all features, on one to three streams and queries. Where
everything may happen at any time, little of it happens together. Times, values, streams and queries are few,
so that ties at the moment when something is due, touching borders and second lives come up all the time.

A history follows from its generator alone and from no other history, so any of them can be played by itself.
Hypothesis is not for this: what it draws are mostly variations of one another. How much these histories find
is measured (``faults``); whoever changes the weights measures again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.cases.driver import Mode

Operation = tuple[str, Any]

STREAMS = ("a", "b", "c")
IDS = ("p", "q", "r")
KINDS = ("tug", "cargo", "yacht")

_WAITS = ((None, 1, 2, 3), (1, 2), (3,), (None, 5))
"""What waits of one history may be, ms: shorter and longer than silences, lives and what passes at a time."""
_FIELDS: dict[str, tuple[Any, ...]] = {
    "on": (
        *[["match", "enter", "leave"]] * 2,
        *(["enter", "leave"], ["enter", "leave", "cross"], ["match", "enter", "leave", "cross"]),
        *(["match"], ["enter"], ["match", "leave"], ["cross"]),
    ),
    "initial": ("emit", "ignore"),
    "for": (),  # of _WAITS
    "cooldown": (),
    "once": (False, True),
    "keep": (),  # what may be depends on ``where``
    "enabled": (True, True, False),
    "expires_at": (None, 1, 4),
}
_POLICIES: dict[str, tuple[Any, ...]] = {
    "missing": ("carry",),
    "late": ("no_border", "process", "reject"),
    "stream_ttl": (2, 3, 4),
    "stale_after": (1, 2, 3),
    "grown": (True,),
}
_OVER = {"lon": "x", "lat": "y"}
_SHAPES = tuple(
    {**shape, **_OVER}
    for shape in (
        {"polygon": {"type": "Polygon", "coordinates": [[[0, 0], [3, 0], [3, 3], [0, 0]]]}},
        {"polygon": {"type": "Polygon", "coordinates": [[[1, 1], [2, 0], [3, 1], [2, 2], [1, 1]]]}},
        {"circle": {"lon": 1, "lat": 1, "radius_m": 130_000}},
        {"circle": {"lon": 2, "lat": 2, "radius_m": 400_000}},
    )
)
"""Corners, edges and what lies beside them are where streams are."""
_UNCUT = ("events", "remove")
_CUTTING = (
    *("commands", "patch", "delete", "quarantine", "source"),
    *("restart", "reassign", "crash"),
)
"""What a history may do besides sending events, waiting and putting queries; and where a batch ends."""


class History(NamedTuple):
    """``names``: attributes of the source; ``max_ids``: the most ids in a record; ``mode`` and ``portion``:
    see ``World``; ``keys``: by an id of the operations, what the service knows the query by, if that is
    another tenant's."""

    names: tuple[str, ...]
    max_ids: int
    mode: Mode
    operations: list[Operation]
    portion: int | None = None
    keys: Mapping[str, str] = MappingProxyType({})


_SHARED: tuple[Mapping[str, str], ...] = (
    {"q": "acme/p", "r": "acme/q"},
    {"p": "zed/p", "q": "p", "r": "acme/p"},
)
"""Several tenants with the same ids."""
_KEYS = ({}, {}, {"p": "acme/p", "q": "acme/q", "r": "acme/r"}, *_SHARED)
"""The default tenant alone, another alone, or several."""


def history(
    rng: Random, names: tuple[str, ...], modes: Sequence[Mode], author_of: type[_Author] | None = None
) -> History:
    """Policies, two queries, then other operations."""
    mode = rng.choice(modes)
    author = (author_of or _Author)(rng, names, uncut=mode == "batch" and rng.random() < 0.6)
    begin = [("source", author.policies()), ("put", author.query()), ("put", author.query())]
    operations = begin + [author.operation() for _ in range(rng.choice((10, 20, 30, 40)))]
    max_ids = rng.choice((1000, 1000, 1, 2))
    # By a generator of its own, so that the faults that a history is known to find are still the same.
    keys = Random(repr(operations)).choice(_KEYS)
    return History(names, max_ids, mode, operations, keys=keys)


def portioned(rng: Random, names: tuple[str, ...], modes: Sequence[Mode]) -> History:
    """The same where commands are told in small portions, so that something is owed nearly always; what is
    selected changes meanwhile."""
    drawn = history(rng, names, modes)
    operations: list[Operation] = []
    for operation, argument in drawn.operations:
        if operation == "put":
            argument = argument | {"select": list(rng.choice(((), names[:1], names)))}
        operations += [(operation, argument), *[("tell", None)] * (rng.random() < 0.15)]
    # Records of matches are split by selection and by size; the oracle knows sizes only.
    return drawn._replace(operations=operations, max_ids=1000, portion=rng.choice((1, 1, 2, 3)))


def shared(rng: Random, names: tuple[str, ...], modes: Sequence[Mode]) -> History:
    """A history of several tenants."""
    drawn = history(rng, names, modes)
    return drawn._replace(keys=rng.choice(_SHARED))


def jumping(rng: Random, names: tuple[str, ...], modes: Sequence[Mode]) -> History:
    """A history of queries of several narrow boxes, all told of jumps: who jumps over one of them may be
    inside another at either end, which boxes drawn one by one hardly ever are."""
    return history(rng, names, modes, _Jumper)


_DEDUPS = (
    *({"dedup": {"by": "id", "last": last}} for last in (1, 2, 2, 3, 5)),
    {"dedup": {"by": "other", "last": 2}},
    {},
)


def copied(rng: Random, names: tuple[str, ...], modes: Sequence[Mode]) -> History:
    """A history of events with ids, few and often the same; how many of them are remembered, and by which
    field, changes."""
    drawn = history(rng, names, modes)
    policies: dict[str, Any] = {}
    operations: list[Operation] = []
    for operation, argument in drawn.operations:
        if operation in ("event", "crash"):
            argument = _with_ids(rng, argument)
        elif operation == "events":
            argument = [_with_ids(rng, event) for event in argument]
        elif operation == "source":
            policies = argument
            argument = policies | (rng.choice(_DEDUPS) if operations else _DEDUPS[1])
        operations.append((operation, argument))
        if drawn.mode != "batch" and rng.random() < 0.1:
            operations.append(("source", policies | rng.choice(_DEDUPS)))
    return drawn._replace(operations=operations)


def _with_ids(rng: Random, event: tuple[str, int | None, dict[str, Any]]) -> Any:
    stream, lead, values = event
    ids = {"id": rng.choice((1, "1", 2, "b", "c", None)), "other": rng.choice("bcd")}
    return stream, lead, values | {name: id for name, id in ids.items() if rng.random() < 0.9}


COLLECTION = "c"


def collected(rng: Random, names: tuple[str, ...], modes: Sequence[Mode]) -> History:
    """A history of which two queries can be members of a collection, in one of two tenants; now and then the
    collection is put as a whole or deleted."""
    drawn = history(rng, names, modes)
    name = rng.choice((COLLECTION, f"acme/{COLLECTION}"))
    bodies = [argument for operation, argument in drawn.operations if operation == "put"]
    operations: list[Operation] = []
    for one in drawn.operations:
        operations.append(one)
        if rng.random() < 0.2:
            chosen = {
                body["id"]: body for body in rng.sample(bodies, min(len(bodies), rng.choice((0, 1, 3, 3))))
            }
            operations.append(("collection", [chosen[id] for id in IDS[:2] if id in chosen]))
        elif rng.random() < 0.03:
            operations.append(("collection", None))
    return drawn._replace(operations=operations, keys={id: f"{name}:{id}" for id in IDS[:2]})


class _Author:
    """Draws operations of one history, events by far the most; ``uncut``: none that ends a batch."""

    def __init__(self, rng: Random, names: tuple[str, ...], *, uncut: bool) -> None:
        self._rng = rng
        self._names = names
        self._streams = rng.choice((STREAMS[:1], STREAMS[:1], STREAMS, STREAMS[:2]))
        self._last: dict[str, dict[str, Any]] = {}
        self._bodies: dict[str, dict[str, Any]] = {}
        self._ids = rng.choice((IDS[:1], IDS, IDS[:2]))
        self._features = self._half(_FIELDS)
        self._waits = rng.choice(_WAITS[2:] if uncut else _WAITS)
        self._shapes = "y" in names and rng.random() < 0.25
        self._policies = self._half(_POLICIES)
        self._operations = ["event"] * 8 + ["pass"] * 4
        if uncut:
            self._operations += ["remove", *self._half(_UNCUT)]
        else:
            self._operations += ["put", "put", *self._half(_UNCUT), *self._half(_CUTTING)]

    def _half(self, features: Sequence[str] | dict[str, Any]) -> list[str]:
        return [feature for feature in features if self._rng.random() < 0.5]

    def _often(self, share: float) -> bool:
        return self._rng.random() < share

    def operation(self) -> Operation:
        operation = self._rng.choice(self._operations)
        return operation, self._argument(operation)

    def _argument(self, operation: str) -> Any:
        choice = self._rng.choice
        match operation:
            case "event" | "crash":
                return self.event()
            case "events":
                return [self.event() for _ in range(choice((2, 3, 4)))]
            case "pass":
                return choice((1, 1, 1, 1, 2, 2, 3, 4))
            case "put":
                return self.query()
            case "patch":
                return choice(self._ids), self.patch()
            case "commands":
                asked = [choice(("put", "patch", "delete")) for _ in range(choice((2, 3, 4)))]
                return [(one, self._argument(one)) for one in asked]
            case "source":
                return self.policies()
            case "remove":
                return choice(self._streams)
            case "delete" | "quarantine":
                return choice(self._ids)
            case _:  # a restart may be on a compacted log, a partition be resumed as it was
                return self._often(0.5)

    def event(self) -> tuple[str, int | None, dict[str, Any]]:
        """A stream, how far its ``ts`` is ahead of the wall time (None: it has none), and values; often those
        that it had."""
        stream = self._rng.choice(self._streams)
        if stream not in self._last or self._often(0.6):
            self._last[stream] = self._values()
        lead = self._rng.choice((None, -3, -1, 0, 0, 0, 0, 1, 3))
        return stream, lead, self._last[stream]

    def _values(self) -> dict[str, Any]:
        shares = {"x": 0.85, "y": 0.7, "k": 0.7}
        values: dict[str, Any] = {
            name: self._rng.choice(KINDS) if name == "k" else self._rng.randrange(4)
            for name in self._names
            if self._often(shares[name])
        }
        if self._often(0.2):  # an attribute that the source may have or not
            values["z"] = self._rng.randrange(4)
        return values

    def policies(self) -> dict[str, Any]:
        """Those that were chosen, or half of them."""
        share = self._rng.choice((1.0, 0.5))
        return {name: self._rng.choice(_POLICIES[name]) for name in self._policies if self._often(share)}

    def query(self) -> dict[str, Any]:
        """A query; often one that there was, but for a field or two: what is remembered goes on then."""
        id = self._rng.choice(self._ids)
        names = ["where", *self._features]
        if id in self._bodies and self._often(0.6):
            names = self._rng.choices(names, k=2)
        body = self._bodies.get(id, {"id": id})
        where = self._region() if "where" in names else body["where"]
        self._bodies[id] = body | {name: self._field(name, where) for name in names}
        return self._bodies[id]

    def patch(self) -> dict[str, Any]:
        name = self._rng.choice(["where", "tags", *self._features])
        return {name: self._field(name, self._region())}

    def _field(self, name: str, where: dict[str, Any]) -> Any:
        match name:
            case "where":
                return where
            case "tags":
                return {"a": self._rng.choice("bc")}
            case "for" | "cooldown":
                return self._rng.choice(self._waits)
            case "keep":
                return self._rng.choice(_wider(where))
            case _:
                return self._rng.choice(_FIELDS[name])

    def _region(self) -> dict[str, Any]:
        return {"any": [self._conjunct() for _ in range(self._rng.choice((1, 1, 2)))]}

    def _conjunct(self) -> dict[str, Any]:
        shares = {"x": 0.85, "y": 0.5, "k": 0.5}
        if self._shapes and self._often(0.5):
            return {"in": self._rng.choice(_SHAPES)} | ({"k": self._texts()} if self._often(0.3) else {})
        bounds = {"x": self._interval, "y": self._interval, "k": self._texts}
        return {name: bounds[name]() for name in self._names if self._often(shares[name])}

    def _interval(self) -> dict[str, Any]:
        lo, hi = sorted((self._rng.randrange(4), self._rng.randrange(4)))
        return self._rng.choice(
            [
                {"gte": lo, "lte": hi},
                {"gte": lo, "lt": hi + 1},
                {"gt": lo - 0.5, "lt": hi + 0.5},
                {"gte": lo},
                {"lt": hi + 1},
            ]
        )

    def _texts(self) -> dict[str, Any]:
        one, other = self._rng.sample(KINDS, 2)
        return self._rng.choice(({"eq": one}, {"ne": one}, {"in": [one]}, {"in": [one, other]}))


class _Jumper(_Author):
    """See ``jumping``."""

    def __init__(self, rng: Random, names: tuple[str, ...], *, uncut: bool) -> None:
        super().__init__(rng, names, uncut=uncut)
        self._features = list(dict.fromkeys([*self._features, "on"]))

    def _field(self, name: str, where: dict[str, Any]) -> Any:
        if name == "on":
            return self._rng.choice([on for on in _FIELDS["on"] if "cross" in on])
        return super()._field(name, where)

    def _region(self) -> dict[str, Any]:
        return {"any": [self._conjunct() for _ in range(self._rng.choice((2, 2, 3)))]}

    def _conjunct(self) -> dict[str, Any]:
        shares = {"x": 1.0, "y": 0.2, "k": 0.3}
        bounds = {"x": self._narrow, "y": self._interval, "k": self._texts}
        return {name: bounds[name]() for name in self._names if self._often(shares[name])}

    def _narrow(self) -> dict[str, Any]:
        """About one of the values that streams have, or between two of them."""
        at = self._rng.randrange(4)
        return self._rng.choice(
            ({"gte": at, "lte": at}, {"gte": at, "lt": at + 0.5}, {"gt": at, "lt": at + 1})
        )


def _wider(where: dict[str, Any]) -> list[dict[str, Any] | None]:
    """What ``keep`` may be for a ``where``: nothing, everything, the same, each number two wider."""
    widened = [
        {
            name: {"gte": bound["gte"] - 2, "lte": bound["lte"] + 2} if "lte" in bound else bound
            for name, bound in conjunct.items()
        }
        for conjunct in where["any"]
    ]
    return [None, {"any": [{}]}, where, {"any": widened}, {"any": widened}]
