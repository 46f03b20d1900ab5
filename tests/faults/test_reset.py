"""Where the history that a partition needs is gone, its streams begin anew; whoever folds the log agrees."""

from __future__ import annotations

from contextlib import closing

import pytest
from kafka import KafkaProducer

from deploy.kafka.broker import Broker
from service.engine.commands import DeleteQuery, PatchQuery
from service.log.kafka_library import CONFLUENT_KAFKA, KAFKA_PYTHON
from service.log.port import LogUnusable
from tests.faults.alone import BLOCK, RING, ZERO, Alone, LosingTopics, furnish
from tests.log.sites import eventually

#: State records beside those of the streams: what has been heard, what an aggregate has told, the position.
ASIDE = 3
#: What the broker does not look at: the segment that is being written.
NOT_YET = 6


def test_what_is_missed_and_can_be_had_is_told_as_it_was(alone: Alone) -> None:
    furnish(alone)
    alone.elsewhere(PatchQuery("a", {"where": "x > 8"}), DeleteQuery("b"))
    alone.begin()
    reasons = [reason for _, _, reason, _, _ in alone.told()]
    assert "reset" not in reasons
    assert {"updated", "deleted"} <= set(reasons)
    assert alone.folded()["s3"] == {"c", "counted"}


@pytest.mark.kafka
def test_state_is_had_from_a_compacted_topic_alone(broker: Broker) -> None:
    """The broker compacts it while it is written; of the input nothing is left."""
    site = LosingTopics(broker.address)
    alone = Alone(site)
    furnish(alone)
    site.compact_at_once("state")
    for turn in range(60):
        alone.process({"stream_id": f"n{turn % 13}", "x": turn % 9})

    def compacted() -> bool:
        alone.process({"stream_id": "n0", "x": 3}, {"stream_id": "n0", "x": 8})
        return len(site.outputs("state")) <= RING + 16 // BLOCK + ASIDE + NOT_YET

    eventually(compacted, "what was written over is gone")
    site.trim(alone.log, ZERO, alone.log.end_offsets([ZERO])[ZERO])
    before, seqs = alone.folded(), {id: seq for id, seq, *_ in alone.told()}
    alone.begin()
    engine = alone.worker.engine
    for id, inside in before.items():
        view = engine.stream("s", id)
        assert view is not None
        assert (set(view.inside), view.seq) == (inside, seqs[id])
    alone.process({"stream_id": "n0", "x": -200})
    assert alone.folded()["n0"] == {"c"}
    assert not any(reason == "reset" for _, _, reason, _, _ in alone.told())
    alone.close()


def test_streams_begin_anew_where_the_command_log_is_past_their_position(alone: Alone) -> None:
    furnish(alone)
    before = len(alone.told())
    then = [read.offset for read in alone.commands() if b'"op":"query","id":"a"' in (read.value or b"")]
    missed = alone.commands()[-1].offset + 1
    alone.elsewhere(PatchQuery("a", {"where": "x > 8"}), DeleteQuery("b"))
    alone.site.lose_command(then[0])
    alone.begin()
    assert alone.told()[before:] == [
        ("s1", 1, "reset", [], []),
        ("s2", 1, "reset", [], []),
        ("s3", 1, "reset", [], []),
        ("s1", 2, "registered", [], ["a", "c"]),
        ("s1", 3, "registered", [], ["counted", "d"]),
        ("s1", 4, "registered", [], ["kept"]),
        ("s2", 2, "registered", [], ["c"]),
        ("s3", 2, "registered", [], ["c", "counted"]),
    ]
    assert all(record["origin"] == {"command": missed} for record in alone.borders()[before:])
    members = {id: set(alone.worker.engine.members(id)) for id in alone.worker.engine.catalog.queries}
    inside = alone.folded()
    assert members == {id: {stream for stream in inside if id in inside[stream]} for id in members}
    assert members["shy"] == set(), "it is ignored where it is found inside"
    assert b'rangewatch_resets_total{missing="commands"} 1.0' in alone.worker._metrics.text()
    alone.process({"stream_id": "s3", "x": 20}, {"stream_id": "s2", "x": 3})
    assert alone.folded()["s3"] == {"a", "c", "d", "counted", "kept"}
    assert alone.told()[-3][:3] == ("s3", 3, "event")
    alone.begin()
    assert b'missing="commands"} 0.0' in alone.worker._metrics.text(), "it is said once"


def test_streams_begin_anew_with_their_next_event_where_the_state_is_gone(alone: Alone) -> None:
    furnish(alone)
    before = len(alone.told())
    alone.close()
    alone.site.lose_state()
    alone.begin()
    assert len(alone.told()) == before
    assert b'rangewatch_resets_total{missing="state"} 1.0' in alone.worker._metrics.text()
    alone.process({"stream_id": "s1", "x": 6}, {"stream_id": "s1", "x": -1}, {"stream_id": "new", "x": -200})
    alone.begin()
    alone.process({"stream_id": "s3", "x": -6}, {"stream_id": "s1", "x": 1})
    assert alone.told()[before:] == [
        ("s1", 1, "reset", [], []),
        ("s1", 2, "event", [], ["a", "b"]),
        ("s1", 3, "event", [], ["c", "counted"]),
        ("s1", 4, "event", ["a", "b"], []),
        ("s1", 5, "event", ["counted"], []),
        ("new", 1, "reset", [], []),
        ("new", 2, "event", [], ["c"]),
        ("s3", 1, "reset", [], []),
        ("s3", 2, "event", [], ["c"]),
        ("s1", 6, "event", [], ["a", "counted"]),
        ("s1", 7, "event", [], ["shy"]),
    ]
    assert alone.folded() == {"s1": {"a", "c", "counted", "shy"}, "s2": {"c"}, "s3": {"c"}, "new": {"c"}}


def forgotten(site: LosingTopics) -> None:
    """As the broker does with a group that has been empty for ``offsets.retention.minutes``."""
    with closing(site.admin()) as admin:
        admin.delete_groups([site.group])


@pytest.mark.kafka
@pytest.mark.parametrize("client", [KAFKA_PYTHON, CONFLUENT_KAFKA])
def test_a_position_that_the_group_has_forgotten_is_beside_the_state(broker: Broker, client: str) -> None:
    site = LosingTopics(broker.address, client=client)
    alone = Alone(site)
    furnish(alone)
    before, matches, inside = alone.told(), site.outputs("matches"), alone.folded()
    site.trim(alone.log, ZERO, alone.log.end_offsets([ZERO])[ZERO])
    alone.close()
    forgotten(site)
    alone.begin()
    assert (alone.told(), site.outputs("matches"), alone.folded()) == (before, matches, inside)
    alone.process({"stream_id": "s3", "x": -200})
    assert alone.told()[: len(before)] == before and alone.folded()["s3"] == {"c"}
    assert not any(reason == "reset" for _, _, reason, _, _ in alone.told())
    alone.close()


@pytest.mark.kafka
@pytest.mark.parametrize("client", [KAFKA_PYTHON, CONFLUENT_KAFKA])
def test_a_group_goes_on_where_another_one_has_stopped(broker: Broker, client: str) -> None:
    """And the first one again: what it has committed itself is long past."""
    site = LosingTopics(broker.address, client=client)
    alone = Alone(site)
    furnish(alone)
    first, site.group = site.group, site.group + "-2"
    alone.begin()
    alone.process({"stream_id": "s3", "x": -200}, {"stream_id": "s1", "x": 8}, {"stream_id": "s2", "x": 6})
    before, matches, inside = alone.told(), site.outputs("matches"), alone.folded()
    alone.close()
    site.group = first
    alone.begin()
    assert (alone.told(), site.outputs("matches"), alone.folded()) == (before, matches, inside)
    alone.process({"stream_id": "s3", "x": 8})
    assert alone.told()[: len(before)] == before and "d" in alone.folded()["s3"]
    alone.close()


@pytest.mark.kafka
@pytest.mark.parametrize("more", [0, 5], ids=["shorter", "longer"])
def test_a_topic_that_was_deleted_and_made_anew_is_told(broker: Broker, more: int) -> None:
    """The group forgets with the topic; the new one would be read from where the old one was."""
    site = LosingTopics(broker.address)
    alone = Alone(site)
    furnish(alone)
    before, matches = alone.told(), site.outputs("matches")
    alone.close()
    name = site.prefix + ZERO.topic
    with closing(site.admin()) as admin:
        admin.delete_topics([name])
        eventually(lambda: admin.describe_topics([name])[0]["error_code"], "it is gone")
        admin.create_topics({name: {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)
    with closing(KafkaProducer(bootstrap_servers=broker.address)) as producer:
        for number in range(more):
            producer.send(name, b'{"stream_id": "n%d", "x": 1}' % number, partition=0).get(9)
    for lost_input in ("stop", "go_on"):
        with pytest.raises(LogUnusable, match=r"events\.s was deleted and made anew"):
            alone.begin(lost_input=lost_input)
    assert (alone.told(), site.outputs("matches")) == (before, matches)
    alone.close()


@pytest.mark.kafka
def test_a_position_that_is_truly_gone_is_told_and_streams_begin_anew_if_that_is_wanted(
    broker: Broker,
) -> None:
    """State as earlier versions have left it has no position beside it."""
    site = LosingTopics(broker.address)
    alone = Alone(site)
    furnish(alone)
    before = len(alone.told())
    alone.close()
    forgotten(site)
    with closing(KafkaProducer(bootstrap_servers=broker.address)) as producer:
        producer.send(site.prefix + "state", key=b"%s/0/@" % ZERO.topic.encode(), partition=0).get(9)
    with pytest.raises(LogUnusable, match=r"has no position there.*lost_input=go_on"):
        alone.begin()
    assert len(alone.told()) == before
    alone.begin(lost_input="go_on")
    told = alone.told()[before:]
    assert {reason for _, _, reason, _, _ in told} >= {"reset", "registered"}
    resets = [id for id, _, reason, _, _ in told if reason == "reset"]
    assert sorted(resets) == ["s1", "s2", "s3"], "each stream begins anew once"
    assert next(seq for id, seq, *_ in told if id == "s1") == 1
    members = {id: set(alone.worker.engine.members(id)) for id in alone.worker.engine.catalog.queries}
    inside = alone.folded()
    assert members == {id: {stream for stream in inside if id in inside[stream]} for id in members}
    assert b'rangewatch_resets_total{missing="position"} 1.0' in alone.worker._metrics.text()
    alone.begin()
    assert b'missing="position"} 0.0' in alone.worker._metrics.text(), "it is said once"
    alone.close()
