"""Several tenants on one source, where the random histories do not come: begin anew, state, quotas, entries
of the command log that nobody here has written."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest

from service.decode import Decoder
from service.engine.collections import Member, Plan, planned
from service.engine.commands import DeleteQuery, PatchQuery, PutQuery, PutSource
from service.engine.effects import Batch, Task
from service.engine.engine import Engine, EngineLimits
from service.model import Reason, Refusal
from service.tenants import tenant_of
from service.wire import Encoder
from tests.cases.engine_driver import EngineDriver

TASK = Task("events.s", 0)
Told = tuple[str, str, int, str, list[str]]


def put(id: str, tenant: str = "default", where: str = "x > 0", **fields: Any) -> PutQuery:
    return PutQuery(id, {"source": "s", "where": where, **fields}, tenant=tenant)


def begun(*commands: PutQuery | PatchQuery | DeleteQuery, **limits: int) -> EngineDriver:
    driver = EngineDriver(EngineLimits(**limits))
    driver.source("s", {"attributes": {"x": "number"}})
    for command in commands:
        assert driver.commands([command])[0][0] == 200
    return driver


def send(driver: EngineDriver, **of_stream: float | None) -> None:
    for stream, x in of_stream.items():
        value = None if x is None else json.dumps({"stream_id": stream, "x": x}).encode()
        driver.send("s", stream.encode(), value)
    driver.flush()


def told(driver: EngineDriver) -> list[Told]:
    borders = [json.loads(value) for topic, _, value in driver.records() if topic == "borders"]
    return [
        (one["tenant"], one["stream_id"], one["seq"], one["reason"], one["leave"] + one["enter"])
        for one in borders
    ]


def anew(driver: EngineDriver, engine: Engine, records: dict[bytes, bytes]) -> list[Told]:
    """What streams are told that begin anew with an engine; the driver has it from then on."""
    before = len(told(driver))
    driver._write(())
    effects = engine.reset(TASK, records.items(), 0, driver._now)
    encoder = Encoder(engine.queries_of(TASK), max_ids=engine.limits.ids, max_bytes=1 << 20)
    for one in effects:
        driver._outputs += [tuple(output) for output in encoder.commands(one, engine.tables[TASK])]
    driver.engine = engine
    driver._write(())
    return told(driver)[before:]


def replayed(driver: EngineDriver, first: int = 0) -> Engine:
    engine = Engine()
    engine.command(list(enumerate(driver._entries))[first:], 0)
    return engine


def test_tenants_with_the_same_ids_are_told_of_their_own() -> None:
    driver = begun(put("q"), put("q", "acme", "x > 1", select=["x"]), put("r", "acme"), put("q", "zed"))
    send(driver, a=2)
    send(driver, a=1)
    matches = [json.loads(value) for topic, _, value in driver.records() if topic == "matches"]
    assert [(one["tenant"], one["queries"], one["attrs"]) for one in matches] == [
        ("default", ["q"], {}),
        ("acme", ["r"], {}),
        ("acme", ["q"], {"x": 2.0}),
        ("zed", ["q"], {}),
        ("default", ["q"], {}),
        ("acme", ["r"], {}),
        ("zed", ["q"], {}),
    ]
    assert told(driver) == [
        ("default", "a", 1, "event", ["q"]),
        ("acme", "a", 1, "event", ["q", "r"]),
        ("zed", "a", 1, "event", ["q"]),
        ("acme", "a", 2, "event", ["q"]),
    ]
    driver.commands([DeleteQuery("acme/r"), PatchQuery("q", {"enabled": False})])
    assert told(driver)[4:] == [
        ("acme", "a", 3, "deleted", ["r"]),
        ("default", "a", 2, "disabled", ["q"]),
    ]


@pytest.mark.parametrize("compacted", [False, True])
def test_a_reset_is_for_every_tenant_of_the_source(compacted: bool) -> None:
    """Also for one whose queries are all gone, and of whom the command log knows nothing any more: its
    numbers are in the state."""
    driver = begun(put("q"), put("q", "acme"), put("r", "acme"), put("q", "gone"), DeleteQuery("gone/q"))
    driver.commands([put("q", "gone")])
    send(driver, a=1, b=1, c=-1)
    driver.commands([DeleteQuery("gone/q")])
    engine = Engine()
    kept = [(i, e) for i, e in enumerate(driver._entries) if not (compacted and e.get("id") == "gone/q")]
    engine.command(kept, 0)
    tenants = ["default", "acme", "gone"]
    assert anew(driver, engine, driver._state[TASK]) == [
        *((tenant, stream, 1, "reset", []) for stream in "abc" for tenant in tenants),
        *(
            one
            for stream in "ab"
            for one in (
                ("default", stream, 2, "registered", ["q"]),
                ("acme", stream, 2, "registered", ["q", "r"]),
            )
        ),
    ]
    send(driver, a=-1)
    assert told(driver)[-2:] == [("default", "a", 3, "event", ["q"]), ("acme", "a", 3, "event", ["q", "r"])]


def test_streams_that_seem_new_are_reset_for_every_tenant() -> None:
    driver = begun(put("q"), put("q", "acme"), put("r", "acme", "x > 5"), ids=1)
    send(driver, a=1)
    assert anew(driver, replayed(driver), {}) == []
    send(driver, a=9)
    send(driver, b=-1)
    assert told(driver)[2:] == [
        ("default", "a", 1, "reset", []),
        ("default", "a", 2, "event", ["q"]),
        ("acme", "a", 1, "reset", []),
        ("acme", "a", 2, "event", ["q", "r"]),
        ("default", "b", 1, "reset", []),
        ("acme", "b", 1, "reset", []),
    ]


def test_a_tenant_that_is_gone_goes_on_counting_when_it_comes_back() -> None:
    driver = begun(put("q", "acme"))
    send(driver, a=1)
    driver.commands([DeleteQuery("acme/q")])
    driver.restart(compacted=True)
    driver.commands([put("n", "acme")])
    assert [one[2] for one in told(driver)] == [1, 2, 3]
    send(driver, a=None)
    send(driver, a=1)
    assert [one[2:4] for one in told(driver)][3:] == [(4, "stream_removed"), (1, "event")]


def test_what_is_owed_is_of_its_tenant_when_nobody_knows_it_any_more() -> None:
    """A debt outlives the query and the entry of the command log that it is of."""
    driver = begun(put("q", "acme"), portion=1)
    send(driver, a=1, b=1, c=1)
    driver.commands([DeleteQuery("acme/q")])
    driver._entries[-2:] = [None, None]  # as after compaction
    driver.restart()
    assert driver.engine.queries_of(TASK).tenants.names == ["default", "acme"]
    while driver.engine.owes:
        driver.tell()
    assert sorted(told(driver)[3:]) == [("acme", stream, 2, "deleted", ["q"]) for stream in "abc"]


def test_a_state_of_one_tenant_is_what_the_version_before_wrote() -> None:
    driver = begun(put("q"), put("q", "acme", on=["match"]))
    send(driver, a=1)
    versions = [msgspec.msgpack.decode(value)[0] for key, value in driver._state[TASK].items() if key != b"q"]
    assert set(versions) == {3}, "nothing was told of another, so nothing is counted"
    driver.commands([put("r", "acme")])
    blocks = [
        msgspec.msgpack.decode(value, strict=False)
        for key, value in driver._state[TASK].items()
        if key != b"q"
    ]
    assert {block[0]: block[14:] for block in blocks} == {3: [{}], 4: [{0: {"acme": 1}}]}


def test_a_state_of_the_version_before_is_read() -> None:
    driver = begun(put("q"))
    send(driver, a=1, b=-1)
    records = {
        key: value if key == b"q" else msgspec.msgpack.encode(msgspec.msgpack.decode(value)[:14])
        for key, value in driver._state[TASK].items()
    }
    assert records != driver._state[TASK]
    driver._state[TASK] = records
    driver.restart()
    driver.commands([put("q", "acme")])
    send(driver, a=-1)
    assert told(driver)[1:] == [
        ("acme", "a", 1, "registered", ["q"]),
        ("default", "a", 2, "event", ["q"]),
        ("acme", "a", 2, "event", ["q"]),
    ]


def test_aggregates_have_their_tenant_in_the_key_and_the_record() -> None:
    driver = begun(put("q", "acme", aggregates={"of": ["x"]}), put("q", aggregates={}))
    driver.send("s", b"a", b'{"stream_id": "a", "x": 3}')
    effects = driver.engine.apply(TASK, _decoded(driver))
    encoder = Encoder(driver.engine.queries_of(TASK), max_ids=10, max_bytes=1 << 20)
    written = [output for one in effects for output in encoder.aggregates(TASK, one.aggregates)]
    records = [json.loads(output.value or b"") for output in written]
    assert [
        (output.key, one["tenant"], one["query"]) for output, one in zip(written, records, strict=True)
    ] == [
        (b"acme/q/0", "acme", "q"),
        (b"q/0", "default", "q"),
    ]


def _decoded(driver: EngineDriver) -> Batch:
    queries = driver.engine.queries_of(TASK)
    decoder = Decoder(queries.source, queries.dictionaries, max_bytes=1 << 20)
    return decoder.decode(driver._messages[TASK]).batch


# ---- the catalog


def test_a_quota_is_of_each_tenant() -> None:
    driver = begun(queries_tenant=2, queries=3)
    answers = driver.commands([put("a"), put("b", "acme"), put("c", "acme"), put("d", "acme"), put("b")])
    assert [reason for _, reason, _ in answers] == [None, None, None, Reason.QUOTA, Reason.QUOTA]
    draft = driver.engine.draft(0)
    with pytest.raises(Refusal, match="2 queries, all that max_queries_tenant allows"):
        draft.prepare(put("d", "acme"))
    with pytest.raises(Refusal, match="3 queries, all that max_queries allows"):
        draft.prepare(put("b"))
    draft.prepare(DeleteQuery("acme/b"))
    draft.prepare(put("d", "acme"))
    driver.commands([DeleteQuery("acme/c")])
    driver.restart(compacted=True)
    assert driver.commands([put("d", "acme")])[0][0] == 200
    assert dict(driver.engine.catalog.queries_of) == {"default": 1, "acme": 2}


@pytest.mark.parametrize("seed", range(4))
def test_the_quotas_of_each_tenant_are_what_its_queries_come_to(seed: int) -> None:
    """Against a plain sum over what is there, for commands that are judged one by one and all together."""
    rng, most = Random(seed), 7
    driver = begun(disjuncts_tenant=most, queries_tenant=4)
    wheres = ["x > 0", "x > 0 or x < -5", "x > 0 or x < -5 or x == -3"]
    there: dict[tuple[str, str], int] = {}
    seen: Counter[Reason | None] = Counter()
    for _ in range(120):
        commands, expected = [], []
        for _ in range(rng.randrange(1, 4)):
            key = id, tenant = rng.choice("abcdef"), rng.choice(("default", "acme"))
            if key in there and rng.random() < 0.4:
                commands.append(DeleteQuery(id if tenant == "default" else f"acme/{id}"))
                expected.append(None)
                del there[key]
                continue
            where, keeps = rng.choice(wheres), rng.random() < 0.3
            commands.append(put(id, tenant, where, **({"keep": "x > -9 or x < 9"} if keeps else {})))
            comes_to = where.count("x") + 2 * keeps
            others = {k: n for k, n in there.items() if k[1] == tenant and k != key}
            grows = comes_to > there.get(key, 0)
            full = key not in there and len(others) == 4
            refused = full or (grows and sum(others.values()) + comes_to > most)
            expected.append(Reason.QUOTA if refused else None)
            if not refused:
                there[key] = comes_to
        assert [reason for _, reason, _ in driver.commands(commands)] == expected
        seen.update(expected)
        if rng.random() < 0.1:
            driver.restart(compacted=rng.random() < 0.5)
        counted: Counter[str] = Counter()
        for (_, tenant), comes_to in there.items():
            counted[tenant] += comes_to
        assert driver.engine.catalog.disjuncts_of == counted
    assert seen[Reason.QUOTA] > 20


def quarantined(driver: EngineDriver, key: str, **fields: Any) -> None:
    driver.entry({"op": "query", "id": key, "query": {"source": "s", "where": "nowhere > 0", **fields}})
    assert key in driver.engine.catalog.quarantined


def test_a_quarantined_query_counts_towards_the_limits_until_it_is_gone() -> None:
    driver = begun(put("a"), put("b", "acme"), queries_tenant=2, queries=3)
    quarantined(driver, "a")
    assert driver.engine.catalog.disjuncts_of == Counter(acme=1), "it is in no index"
    for _ in range(2):
        assert driver.engine.catalog.queries_of == {"default": 1, "acme": 1}
        answers = driver.commands([put("c"), put("d"), put("d", "acme"), DeleteQuery("c")])
        assert [reason for _, reason, _ in answers] == [None, Reason.QUOTA, Reason.QUOTA, None]
        driver.restart(compacted=True)
    draft = driver.engine.draft(0)
    for command in (put("c"), put("a")):  # a makes room for itself
        draft.prepare(command)
    with pytest.raises(Refusal, match="2 queries, all that max_queries_tenant allows"):
        draft.prepare(put("d"))
    draft = driver.engine.draft(0)
    for command in (DeleteQuery("a"), put("c"), put("d")):  # or for others
        draft.prepare(command)
    with pytest.raises(Refusal, match="2 queries, all that max_queries_tenant allows"):
        draft.prepare(put("a"))
    driver.commands([put("a"), put("c")])
    assert driver.commands([put("d", "acme")])[0][1] is Reason.QUOTA
    assert driver.engine.catalog.queries_of == {"default": 2, "acme": 1}


def test_a_quarantined_member_that_a_file_leaves_out_makes_room() -> None:
    driver = begun(put("c:a", tags={"collection": "c"}), queries=1)
    quarantined(driver, "c:a", tags={"collection": "c"})
    plan = planned(
        "c", "s", "csv", [Member("1", "b", {"where": "x > 0"})], driver.engine.catalog.snapshot("c"),
        now_ms=0, limits=driver.engine.catalog.limits,
    )  # fmt: skip
    assert isinstance(plan, Plan)
    assert [status for status, _, _ in driver.commands(plan.commands)] == [200, 200, 200]
    assert driver.engine.catalog.queries_of == {"default": 1}


def test_who_changes_a_source_is_not_told_whose_query_is_in_the_way() -> None:
    driver = begun(put("secret-id", "secret-tenant"))
    with pytest.raises(Refusal) as refused:
        driver.engine.draft(0).prepare(PutSource("s", {"attributes": {"y": "number"}}))
    assert refused.value.reason is Reason.IN_USE
    assert "secret" not in str(refused.value) and "another tenant" in refused.value.detail


def test_texts_name_queries_as_their_tenant_does() -> None:
    driver = begun(put("q", "acme"))
    draft = driver.engine.draft(0)
    for command in (
        PutQuery(None, {"id": "q", "source": "s", "where": "x > 0"}, create_only=True, tenant="acme"),
        PutQuery("q", {"source": "s", "where": "x > 1"}, if_match="77", tenant="acme"),
        DeleteQuery("acme/n"),
        PatchQuery("acme/n", {}),
    ):
        with pytest.raises(Refusal) as refused:
            draft.prepare(command)
        assert "acme" not in str(refused.value)


@pytest.mark.parametrize("id", ["default/q", "a b/q", "/q", "acme/", "acme/a/b", "acme/a b"])
def test_an_entry_with_a_key_that_is_none_is_quarantined(id: str) -> None:
    driver = begun(put("q"))
    name = id.partition("/")[2]
    driver.entry({"op": "query", "id": id, "query": {"id": name, "source": "s", "where": "x > 0"}})
    send(driver, a=1)
    assert told(driver) == [("default", "a", 1, "event", ["q"])]
    assert list(driver.engine.catalog.quarantined) == [id]
    counted = Counter(["default", tenant_of(id)])  # it is there, whatever it is called
    assert driver.engine.catalog.queries_of == counted
