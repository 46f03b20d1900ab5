"""What explain says is what matching does, and every number in it is true."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from service.engine.categories import overlays
from service.engine.effects import Refused
from service.engine.engine import Engine
from service.engine.explain import Border, Explanation
from service.engine.inquiry import case_of, stand_of
from service.geometry import EARTH_M, Circle, Polygon, normal
from service.language import Limits, parse_query
from service.model import IN, LOWEST, Interval, Reason, Refusal, Region
from service.trial import read_event, try_events
from tests.cases.engine_driver import EngineDriver
from tests.engine.shape_oracle import inside
from tests.engine.test_shapes import EVENT as SHAPES_EVENT
from tests.engine.test_shapes import SOURCE as SHAPES_SOURCE
from tests.engine.test_shapes import WHERE as SHAPES_WHERE
from tests.engine.worlds import EDGES, HALVES, SOURCE, TEXTS, events, is_readable, region, wheres

BODY = {"attributes": {name: kind.value for name, kind in SOURCE.attributes.items()}}
NUMBERS = st.one_of(HALVES, EDGES)
MANY = settings(max_examples=300, deadline=None)


def explained(engine: Engine, meaning: Region, event: bytes) -> tuple[Explanation, dict[str, float | str]]:
    queries = engine.sets["s"]
    dictionaries = overlays(queries.dictionaries)
    points = read_event(queries, dictionaries, event, max_bytes=1000)
    case = case_of(queries, dictionaries, meaning, points)
    (explanation,) = case.explanations()
    return explanation, dict(case.values[0])


def message(values: dict[str, Any]) -> bytes:
    return json.dumps({"stream_id": "a", **values}).encode()


@pytest.fixture(scope="module")
def engine() -> Engine:
    driver = EngineDriver()
    driver.source("s", BODY)
    return driver.engine


@MANY
@given(st.lists(wheres(NUMBERS).filter(is_readable), min_size=1, max_size=4), st.lists(events(NUMBERS)))
def test_the_verdict_is_that_of_matching(wanted: list[Any], sent: list[dict[str, Any]]) -> None:
    driver = EngineDriver()
    driver.source("s", BODY)
    for place, where in enumerate(wanted):
        driver.command("put", {"query": {"id": f"q{place}", "source": "s", "where": where}})
    for values in sent:
        (matched,) = try_events(driver.engine, "s", [message(values)], max_bytes=1000)
        holding = []
        for place in range(len(wanted)):
            query = driver.engine.catalog.queries[f"q{place}"].query
            explanation, seen = explained(driver.engine, query.region, message(values))
            assert seen == values
            holding += [query.id] if explanation.holds else []
        assert holding == matched


@MANY
@given(wheres(NUMBERS).filter(is_readable), events(NUMBERS))
def test_every_predicate_that_fails_is_named_and_no_other(
    engine: Engine, where: Any, values: dict[str, Any]
) -> None:
    meaning = region(where)
    explanation, _ = explained(engine, meaning, message(values))
    assert explanation.holds == (values in meaning)
    for conjunct, disjunct in zip(meaning.conjuncts, explanation.disjuncts, strict=True):
        fails = [name for name, bound in conjunct.items() if values not in Region(({name: bound},))]
        assert [failure.attribute for failure in disjunct.fails] == fails
        assert disjunct.holds == (not fails)
        for failure in disjunct.fails:
            assert failure.bound == conjunct[failure.attribute]
            assert failure.value == values.get(failure.attribute)


@MANY
@given(wheres(NUMBERS).filter(is_readable), events(NUMBERS))
def test_the_border_in_the_way_is_where_the_predicate_begins_to_hold(
    engine: Engine, where: Any, values: dict[str, Any]
) -> None:
    explanation, _ = explained(engine, region(where), message(values))
    for failure in (failure for disjunct in explanation.disjuncts for failure in disjunct.fails):
        border = failure.nearest
        if border is None:
            assert failure.value is None or isinstance(failure.value, str)
            continue
        assert isinstance(failure.bound, Interval) and isinstance(failure.value, float)
        towards = math.inf if failure.value < failure.bound.lo else -math.inf
        first = math.nextafter(border.end, towards) if border.open else border.end
        before = math.nextafter(first, -towards)
        assert failure.bound.lo <= first < failure.bound.hi
        assert not failure.bound.lo <= before < failure.bound.hi
        assert border.distance == min(abs(failure.value - border.end), -LOWEST)
        assert border.open or border.distance > 0, "a closed end that is met is no failure"


@MANY
@given(
    wheres(HALVES).filter(is_readable),
    events(HALVES),
    st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), min_size=2, max_size=2),
    st.sampled_from([0.25, 0.5, 0.75, 0.99]),
)
def test_what_holds_goes_on_holding_within_its_margin(
    engine: Engine, where: Any, values: dict[str, Any], directions: list[float], share: float
) -> None:
    meaning = region(where)
    explanation, _ = explained(engine, meaning, message(values))
    assume(explanation.holds)
    reach = explanation.nearest.distance if explanation.nearest else 1e9
    moved = dict(values)
    for name, direction in zip("xy", directions, strict=True):
        if name in values:
            moved[name] = values[name] + direction * share * reach
    assume(all(abs(Fraction(moved[n]) - Fraction(values[n])) < reach for n in "xy" if n in values))
    assert moved in meaning


@MANY
@given(wheres(HALVES).filter(is_readable), events(HALVES))
def test_what_does_not_hold_can_hold_a_little_beyond_its_margin(
    engine: Engine, where: Any, values: dict[str, Any]
) -> None:
    meaning = region(where)
    explanation, _ = explained(engine, meaning, message(values))
    assume(not explanation.holds)
    reach = explanation.nearest.distance if explanation.nearest else None
    # Steps of a quarter meet every cell of a world of halves.
    steps = [n / 4 for n in range(-18, 19)]
    present = [name for name in "xy" if name in values]
    nearest = min(
        (
            max(map(abs, move), default=0.0)
            for move in product(steps, repeat=len(present))
            if {**values, **{n: values[n] + d for n, d in zip(present, move, strict=True)}} in meaning
        ),
        default=None,
    )
    if reach is None:
        assert nearest is None
    else:
        assert nearest is not None and reach <= nearest <= reach + 0.25


@pytest.mark.parametrize(
    ("where", "value", "border"),
    [
        ("x > 5", 5, Border("x", 5.0, 0.0, True)),
        ("x >= 5", 4.5, Border("x", 5.0, 0.5, False)),
        ("x < 29.8", 29.8, Border("x", 29.8, 0.0, True)),
        ("x <= 5", 7, Border("x", 5.0, 2.0, False)),
        ("x == 5", 7, Border("x", 5.0, 2.0, False)),
        ("x == 5", 4, Border("x", 5.0, 1.0, False)),
        ("x > 0", -0.0, Border("x", 0.0, 0.0, True)),
        ("2 < x <= 4", 9, Border("x", 4.0, 5.0, False)),
        ("x >= 1.7e308", -1.7e308, Border("x", 1.7e308, -LOWEST, False)),
    ],
)
def test_borders_of_failures(engine: Engine, where: str, value: float, border: Border) -> None:
    explanation, _ = explained(engine, region(where), message({"x": value}))
    assert not explanation.holds
    assert explanation.disjuncts[0].fails[0].nearest == border
    assert explanation.nearest == explanation.disjuncts[0].nearest == border


@pytest.mark.parametrize(
    ("where", "values", "border"),
    [
        ("x >= 5", {"x": 5}, Border("x", 5.0, 0.0, False)),
        ("0 < x < 10 and y >= 2", {"x": 4, "y": 3}, Border("y", 2.0, 1.0, False)),
        ("0 < x < 10 or -100 < x < 100", {"x": 4}, Border("x", 100.0, 96.0, True)),
        ("3 <= x < 5", {"x": 4}, Border("x", 5.0, 1.0, True)),
        ("3 < x <= 5", {"x": 4}, Border("x", 3.0, 1.0, True)),
        ("3 <= x <= 5 and 0 < y", {"x": 4, "y": 1}, Border("y", 0.0, 1.0, True)),
        ("3 <= x or 0 < y", {"x": 4, "y": 1}, Border("x", 3.0, 1.0, False)),
        ("k == 'tug'", {"k": "tug"}, None),
        ("0 < x < 10 or k == 'tug'", {"x": 4, "k": "tug"}, None),
        ("True", {}, None),
        ("x <= 1.7976931348623157e308", {"x": 5}, None),
    ],
)
def test_the_margin_of_what_holds(
    engine: Engine, where: str, values: dict[str, Any], border: Border | None
) -> None:
    explanation, _ = explained(engine, region(where), message(values))
    assert explanation.holds
    assert explanation.nearest == border


@pytest.mark.parametrize(
    ("where", "border"),
    [
        ("x > 1 or y >= 1", Border("y", 1.0, 1.0, False)),
        ("x >= 1 and y > 1", Border("y", 1.0, 1.0, True)),
        ("x > 1 and y >= 1", Border("x", 1.0, 1.0, True)),
    ],
)
def test_of_borders_equally_far_away_a_closed_one_is_reached_first(
    engine: Engine, where: str, border: Border
) -> None:
    explanation, _ = explained(engine, region(where), message({"x": 0, "y": 0}))
    assert explanation.nearest == border


def test_no_number_helps_where_a_text_or_a_missing_value_is_in_the_way(engine: Engine) -> None:
    for where, values in (("x > 5 and k == 'tug'", {"x": 1, "k": "cargo"}), ("x > 5 and y > 5", {"x": 1})):
        explanation, _ = explained(engine, region(where), message(values))
        assert [failure.nearest is None for failure in explanation.disjuncts[0].fails].count(True) == 1
        assert explanation.nearest is None


def test_what_is_asked_about_leaves_no_trace_and_unknown_texts_differ(engine: Engine) -> None:
    dictionary = engine.sets["s"].dictionaries["k"]
    before = list(dictionary.texts)
    for where, holds in (
        ("k == 'never heard of'", False),
        ("k == 'first heard here'", True),
        ("k != 'never heard of'", True),
        ("k not in ('tug', 'first heard here')", False),
    ):
        query = parse_query({"source": "s", "where": where}, {"s": SOURCE}, id="q", now_ms=0, limits=Limits())
        explanation, values = explained(engine, query.region, message({"k": "first heard here"}))
        assert values == {"k": "first heard here"}
        assert explanation.holds is holds
    assert dictionary.texts == before
    assert "never heard of" not in TEXTS


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (b'{"stream_id": "a", "x": NaN}', Reason.MALFORMED),
        (b'{"stream_id": "a", "x": 1e999}', Reason.NOT_FINITE),
        (b'{"stream_id": "a", "x": null}', Reason.NOT_A_NUMBER),
        (b'{"stream_id": "a", "x": 9007199254740993}', Reason.INEXACT),
        (b'{"x": 1}', Reason.NO_STREAM_ID),
        (b"7", Reason.MALFORMED),
    ],
)
def test_an_event_is_refused_as_by_matching(engine: Engine, event: bytes, reason: Reason) -> None:
    (refused,) = try_events(engine, "s", [event], max_bytes=1000)
    assert isinstance(refused, Refused) and refused.reason is reason
    with pytest.raises(Refusal) as caught:
        explained(engine, region("x > 0"), event)
    assert (caught.value.reason, caught.value.field, caught.value.detail) == (reason, "event", refused.detail)


@pytest.mark.parametrize("event", [b"[]", b'[{"stream_id": "a"}, {"stream_id": "b"}]'])
def test_several_events_are_no_event(engine: Engine, event: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        explained(engine, region("x > 0"), event)
    assert (caught.value.reason, caught.value.field) == (Reason.MALFORMED, "event")


@settings(max_examples=100, deadline=None)
@given(SHAPES_WHERE, st.lists(SHAPES_EVENT, min_size=1, max_size=4))
def test_shapes_hold_and_fail_as_in_matching(where: Any, sent: list[dict[str, Any]]) -> None:
    driver = EngineDriver()
    driver.source("s", SHAPES_SOURCE)
    status, _, _ = driver.command("put", {"query": {"id": "q", "source": "s", "where": where}})
    assume(status == 200)
    meaning = driver.engine.catalog.queries["q"].query.region
    for values in sent:
        explanation, _ = explained(driver.engine, meaning, message(values))
        assert explanation.holds == inside(where, values)
        for conjunct, disjunct in zip(meaning.conjuncts, explanation.disjuncts, strict=True):
            has_shapes = IN in conjunct
            assert not (disjunct.holds and has_shapes and disjunct.nearest), "a shape has a say"
            for failure in disjunct.fails:
                if failure.attribute != "(x, y)":
                    continue
                assert isinstance(failure.bound, Polygon | Circle)
                position = values.get("x"), values.get("y")
                if None in position:
                    assert failure.value is None and failure.nearest is None
                else:
                    assert failure.value == position and failure.nearest is not None
                    assert failure.nearest.distance == failure.bound.distance(*failure.value) > 0


def test_how_far_it_is_to_a_shape() -> None:
    square = normal("x", "y", [[(0, 0), (4, 0), (4, 4), (0, 4), (0, 0)]])
    assert square.distance(7, 8) == 5
    circle = Circle("x", "y", 0, 0, 100_000)
    assert circle.distance(0, 1) == pytest.approx(math.radians(1) * EARTH_M - 100_000)


def test_what_a_stream_waits_for_is_told_as_time_will_have_it() -> None:
    driver = EngineDriver()
    driver.source("s", {"attributes": {"x": "number"}, "stale_after": 20})
    for id, rule in (("dwell", {"for": 30}), ("cool", {"cooldown": 30})):
        driver.command("put", {"query": {"id": id, "source": "s", "where": "x > 0", **rule}})

    def event(ts: int, x: int) -> None:
        driver.clock(ts)
        driver.send("s", b"a", message({"ts": ts, "x": x}))
        driver.flush()

    def stands(now: int) -> list[tuple[Any, ...]]:
        driver.clock(now)
        driver.flush()
        place = driver.engine.place_of("s", "a")
        assert place is not None
        found = []
        for id in ("dwell", "cool"):
            query = driver.engine.catalog.queries[id].query
            stand = stand_of(driver.engine, query, place, now, registered=True)
            found.append((stand.member, stand.waits_until, stand.barred_until, stand.silent_since))
        return found

    event(100, 1)
    event(101, -1)
    event(102, 1)
    assert stands(121) == [(False, 132, None, None), (False, 131, 131, None)]
    assert stands(122) == [(False, None, None, 102), (False, None, 131, 102)]
    assert stands(130) == [(False, None, None, 102), (False, None, 131, 102)]
    assert stands(140) == [(False, None, None, 102), (False, None, None, 102)], "both would be over by now"
    event(150, 1)
    assert stands(150) == [(False, 180, None, None), (True, None, None, None)]
    event(165, 1)
    assert stands(184) == [(True, None, None, None), (True, None, None, None)]
    assert stands(185) == [(True, None, None, 165), (True, None, None, 165)]
