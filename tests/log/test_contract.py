"""What the port promises, held against every adapter."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from service.log.port import (
    Commit,
    Log,
    LogMoved,
    LogUnusable,
    Message,
    Output,
    Position,
    StateRecord,
    TopicPartition,
)
from tests.log.sites import (
    TOO_LARGE,
    WITHIN_S,
    Site,
    begin,
    commands,
    events,
    eventually,
    gain,
    is_closed,
    opened,
    settle,
    values,
)

TOPIC = "events.a"
ZERO = TopicPartition(TOPIC, 0)


def messages(*bodies: bytes) -> list[Message]:
    return [Message(b"key", body, 0) for body in bodies]


def commit(
    *,
    outputs: dict[bytes, bytes] | None = None,
    state: dict[bytes, bytes | None] | None = None,
    position: tuple[int, int] | None = None,
    partition: TopicPartition = ZERO,
) -> Commit:
    """A commit of one partition."""
    return Commit(
        outputs=[Output("matches", key, value) for key, value in (outputs or {}).items()],
        state={partition: [StateRecord(*one) for one in state.items()]} if state else {},
        positions={partition: Position(*position)} if position else {},
    )


# ---- events


def test_events_come_in_order_and_once(log: Log, site: Site) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    bodies = [b"%d" % number for number in range(500)]
    placed = log.append_events(TOPIC, messages(*bodies))
    assert placed == [(0, number) for number in range(500)]
    chunks = events(log, 500, max_records=70)
    assert values(chunks) == bodies
    assert [record.offset for chunk in chunks for record in chunk.records] == list(range(500))
    assert {chunk.partition for chunk in chunks} == {ZERO}
    assert all(len(chunk.records) <= 70 for chunk in chunks)
    assert all(chunk.next_offset > chunk.records[-1].offset for chunk in chunks)
    assert not log.poll(timeout_s=0, max_records=100).chunks


def test_what_was_written_comes_back_as_it_was(log: Log, site: Site) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    before = time.time_ns() // 1_000_000
    sent = [
        (b"k", b"v"),
        (b"tombstone", None),
        (None, b"no key"),
        (b"", b""),
        (b"\x00\xff", bytes(range(256))),
    ]
    log.append_events(TOPIC, [Message(key, value, 0) for key, value in sent])
    found = [record for chunk in events(log, len(sent)) for record in chunk.records]
    assert [(record.key, record.value) for record in found] == sent
    assert all(before <= record.ts <= time.time_ns() // 1_000_000 for record in found)


def test_a_gained_partition_yields_nothing_before_it_is_started(log: Log, site: Site) -> None:
    opened(log, TOPIC)
    log.append_events(TOPIC, messages(b"early"))
    gained = gain(log, site.partitions)
    assert gained == [TopicPartition(TOPIC, number) for number in range(site.partitions)]
    assert log.partitions(TOPIC) == site.partitions
    for _ in range(3):
        assert not log.poll(timeout_s=0.1, max_records=10).chunks
    assert log.start(ZERO, None) == 0
    assert values(events(log, 1)) == [b"early"]


def test_start_delivers_from_the_offset_that_it_is_given(log: Log, site: Site) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    log.append_events(TOPIC, messages(b"0", b"1", b"2"))
    assert values(events(log, 3)) == [b"0", b"1", b"2"]
    assert log.start(ZERO, 1) == 1
    assert values(events(log, 2)) == [b"1", b"2"]


def test_a_key_stays_in_its_partition(log: Log, site: Site) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    keys = [b"stream-%d" % number for number in range(40)]
    first = log.append_events(TOPIC, [Message(key, b"1") for key in keys])
    second = log.append_events(TOPIC, [Message(key, b"2") for key in keys])
    assert [place[0] for place in first] == [place[0] for place in second]
    assert {place[0] for place in first} == set(range(site.partitions))


def test_several_topics_share_a_poll_fairly(log: Log, site: Site) -> None:
    begin(log, TOPIC, "events.b", partitions=site.partitions)
    for topic in (TOPIC, "events.b"):
        log.append_events(topic, messages(*[b"x"] * 300))
    seen: list[str] = []
    chunks = events(log, 600, max_records=50)
    for chunk in chunks:
        if chunk.partition.topic not in seen:
            seen.append(chunk.partition.topic)
    assert sorted(seen) == [TOPIC, "events.b"]


def test_pause_and_resume(log: Log, site: Site) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    log.append_events(TOPIC, messages(b"0"))
    assert values(events(log, 1)) == [b"0"]
    log.pause([ZERO])
    log.append_events(TOPIC, messages(b"1"))
    for _ in range(3):
        assert not log.poll(timeout_s=0.1, max_records=10).chunks
    log.resume([ZERO])
    assert values(events(log, 1)) == [b"1"]


def test_resume_does_not_start_what_was_not_started(log: Log, site: Site) -> None:
    opened(log, TOPIC)
    gain(log, site.partitions)
    log.append_events(TOPIC, messages(b"0"))
    log.resume([ZERO])
    for _ in range(3):
        assert not log.poll(timeout_s=0.1, max_records=10).chunks


def test_end_offsets_are_after_the_last_event(log: Log, site: Site) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    assert log.end_offsets([ZERO]) == {ZERO: 0}
    log.append_events(TOPIC, messages(b"0", b"1", b"2"))
    assert log.end_offsets([ZERO]) == {ZERO: 3}
    assert log.end_offsets([]) == {}


def test_input_may_vanish_after_it_was_read(make: Callable[[], Log], log: Log, site: Site) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    log.append_events(TOPIC, messages(*[b"%d" % number for number in range(10)]))
    log.commit(commit(state={b"s": b"1"}, position=(events(log, 10)[-1].next_offset, 4)))
    site.trim(log, ZERO, 8)
    log.close()
    again = make()
    begin(again, TOPIC, partitions=site.partitions)
    assert again.position(ZERO) == Position(10, 4)
    assert list(again.restore(ZERO)) == [StateRecord(b"s", b"1")]
    again.append_events(TOPIC, messages(b"10"))
    assert values(events(again, 1)) == [b"10"]
    assert again.start(ZERO, None) == 8
    assert values(events(again, 3)) == [b"8", b"9", b"10"]


def test_reading_goes_on_where_the_log_still_has_something(log: Log, site: Site) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    log.append_events(TOPIC, messages(*[b"%d" % number for number in range(6)]))
    events(log, 6)
    assert log.beginning(ZERO) == 0
    site.trim(log, ZERO, 4)
    assert log.beginning(ZERO) == 4
    log.start(ZERO, log.beginning(ZERO))
    assert values(events(log, 2)) == [b"4", b"5"]
    assert log.answers()


# ---- subscriptions


def test_subscriptions_can_change(log: Log, site: Site) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    log.append_events(TOPIC, messages(b"of interest before"))
    assert values(events(log, 1)) == [b"of interest before"]
    log.append_events("events.b", messages(b"of interest now"))
    log.subscribe(["events.b"])
    log.append_events(TOPIC, messages(b"of interest before"))
    mine = {TopicPartition(TOPIC, number) for number in range(site.partitions)}
    found: list[bytes | None] = []

    def read() -> bool:
        polled = log.poll(timeout_s=0.1, max_records=10)
        mine.difference_update(polled.assignment.lost)
        mine.update(polled.assignment.gained)
        for partition in polled.assignment.gained:  # the group may deal twice
            log.start(partition, None)
        found.extend(values(list(polled.chunks)))
        return bool(found) and log.settled

    eventually(read, "an event of the new topic")
    assert set(found) == {b"of interest now"}
    assert mine == {TopicPartition("events.b", number) for number in range(site.partitions)}


def test_a_new_subscription_is_not_settled_before_it_is_reported(log: Log, site: Site) -> None:
    opened(log)
    log.make_topic(TOPIC)
    eventually(lambda: log.settled, "settled without topics")
    log.subscribe([TOPIC])
    assert not log.settled
    gain(log, site.partitions)
    assert log.settled


# ---- commits


def test_a_restart_goes_on_exactly(make: Callable[[], Log], log: Log, site: Site) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    assert log.position(ZERO) is None
    log.append_events(TOPIC, messages(*[b"%d" % number for number in range(100)]))
    (chunk,) = events(log, 40, max_records=40)
    log.commit(commit(outputs={b"k": b"forty"}, state={b"n": b"40"}, position=(chunk.next_offset, 7)))
    events(log, 30, max_records=30)  # read and not committed
    log.close()
    again = make()
    begin(again, TOPIC, partitions=site.partitions)
    assert again.position(ZERO) == Position(chunk.next_offset, 7)
    assert list(again.restore(ZERO)) == [StateRecord(b"n", b"40")]
    assert values(events(again, 60)) == [b"%d" % number for number in range(40, 100)]
    assert site.outputs("matches") == [(b"k", b"forty")]


def test_a_commit_that_fails_leaves_nothing(log: Log, site: Site) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    bad = commit(outputs={b"a": b"1", b"b": TOO_LARGE, b"c": b"3"}, state={b"s": b"1"}, position=(5, 5))
    with pytest.raises(LogUnusable, match="larger"):
        log.commit(bad)
    assert site.outputs("matches") == []
    assert log.position(ZERO) is None
    assert list(log.restore(ZERO)) == []
    log.commit(commit(outputs={b"d": b"4"}, state={b"s": b"2"}, position=(6, 6)))
    assert site.outputs("matches") == [(b"d", b"4")]
    assert log.position(ZERO) == Position(6, 6)
    assert list(log.restore(ZERO)) == [StateRecord(b"s", b"2")]


def test_a_commit_that_fails_moves_no_position_later(log: Log, site: Site) -> None:
    begin(log, TOPIC, "events.b", partitions=site.partitions)
    other = TopicPartition("events.b", 0)
    with pytest.raises(LogUnusable):
        log.commit(commit(outputs={b"b": TOO_LARGE}, position=(5, 5)))
    log.commit(commit(position=(6, 6), partition=other))
    assert log.position(ZERO) is None
    assert log.position(other) == Position(6, 6)


def test_a_commit_may_be_of_any_part(log: Log, site: Site) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    log.commit(commit(outputs={b"k": b"1"}))
    log.commit(commit(state={b"s": b"1"}))
    log.commit(commit(position=(3, 1)))
    log.commit(commit())
    assert site.outputs("matches") == [(b"k", b"1")]
    assert log.position(ZERO) == Position(3, 1)
    assert list(log.restore(ZERO)) == [StateRecord(b"s", b"1")]


def test_outputs_keep_their_order(log: Log, site: Site) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    for start in range(0, 60, 20):
        outputs = [Output("matches", b"k", b"%d" % (start + number)) for number in range(20)]
        log.commit(Commit(outputs, {}, {}))
    assert [value for _, value in site.outputs("matches")] == [b"%d" % number for number in range(60)]


def test_one_commit_for_all_partitions_and_topics(log: Log, site: Site) -> None:
    gained = begin(log, TOPIC, "events.b", partitions=site.partitions)
    log.commit(
        Commit(
            outputs=[
                Output(topic, b"k", b"v")
                for topic in ("matches", "borders", "joins", "aggregates", "dead_letter")
            ],
            state={one: [StateRecord(b"same key", repr(one).encode())] for one in gained},
            positions={one: Position(10 + place, place) for place, one in enumerate(gained)},
        )
    )
    for topic in ("matches", "borders", "joins", "aggregates", "dead_letter"):
        assert site.outputs(topic) == [(b"k", b"v")]
    for place, one in enumerate(gained):
        assert log.position(one) == Position(10 + place, place)
        assert list(log.restore(one)) == [StateRecord(b"same key", repr(one).encode())]


def test_state_is_the_newest_of_each_key(make: Callable[[], Log], log: Log, site: Site) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    log.commit(commit(state={b"kept": b"1", b"changed": b"1", b"removed": b"1", b"back": b"1"}))
    log.commit(commit(state={b"changed": b"2", b"removed": None, b"back": None, b"never there": None}))
    log.commit(commit(state={b"back": b"3", b"": b"no name"}))
    expected = {b"kept": b"1", b"changed": b"2", b"back": b"3", b"": b"no name"}
    assert dict(log.restore(ZERO)) == expected
    log.close()
    again = make()
    begin(again, TOPIC, partitions=site.partitions)
    restored = list(again.restore(ZERO))
    assert dict(restored) == expected
    assert len(restored) == len(expected)


def test_the_last_of_a_key_in_one_commit_counts(log: Log, site: Site) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    state = [(b"a", b"1"), (b"a", None), (b"a", b"2"), (b"b", b"1"), (b"b", None)]
    log.commit(Commit([], {ZERO: [StateRecord(*one) for one in state]}, {}))
    assert list(log.restore(ZERO)) == [StateRecord(b"a", b"2")]


def test_restore_may_be_left_unfinished(log: Log, site: Site) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    log.commit(commit(state={b"%d" % number: b"v" for number in range(50)}))
    unfinished = log.restore(ZERO)
    next(unfinished)
    log.commit(commit(state={b"0": b"newer"}))
    log.append_events(TOPIC, messages(b"event"))
    assert values(events(log, 1)) == [b"event"]
    assert dict(log.restore(ZERO))[b"0"] == b"newer"
    del unfinished


# ---- commands


def test_commands_are_totally_ordered_and_can_be_read_again(log: Log, site: Site) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    assert log.end_of_commands() == 0
    first = log.append_commands([Message(b"a", b"1"), Message(b"b", b"2")], after=log.end_of_commands())
    second = log.append_commands([Message(b"a", b"3"), Message(b"c", None)], after=log.end_of_commands())
    offsets = first + second
    assert offsets == sorted(set(offsets))
    expected = list(zip(offsets, [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", None)], strict=True))
    assert not log.poll(timeout_s=0.1, max_records=10).commands  # nothing has been sought
    for start in (0, 2, 4):
        log.seek_commands(offsets[start] if start < 4 else log.end_of_commands())
        found = commands(log, 4 - start)
        assert [(one.offset, (one.key, one.value)) for one in found] == expected[start:]
    found = list(log.commands(offsets[1], offsets[3]))
    assert [(one.offset, (one.key, one.value)) for one in found] == expected[1:3]
    assert list(log.commands(0, 0)) == []


def test_a_reader_of_commands_catches_up(log: Log, site: Site) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    log.seek_commands(0)

    def caught_up() -> bool:
        return log.poll(timeout_s=0.1, max_records=10).next_command == log.end_of_commands()

    for number in range(3):
        log.append_commands([Message(b"q", b"%d" % number)] * 2, after=log.end_of_commands())
        eventually(caught_up, "caught up")
    log.seek_commands(log.end_of_commands())
    eventually(caught_up, "caught up at once")


def test_reading_commands_apart_does_not_move_the_polls(log: Log, site: Site) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    offsets = log.append_commands(
        [Message(b"q%d" % number, b"v") for number in range(5)], after=log.end_of_commands()
    )
    log.seek_commands(offsets[0])
    apart = log.commands(0, log.end_of_commands())
    assert next(apart).offset == offsets[0]
    assert [one.offset for one in commands(log, 5)] == offsets
    assert [one.offset for one in apart] == offsets[1:]


def test_commands_survive_and_many_fit_in_one_append(make: Callable[[], Log], log: Log) -> None:
    log.open()
    many = [Message(b"q%d" % number, b"x" * 200) for number in range(3000)]
    offsets = log.append_commands(many, after=log.end_of_commands())
    log.close()
    again = make()
    again.open()
    found = list(again.commands(0, again.end_of_commands()))
    assert [one.offset for one in found] == offsets
    assert [one.key for one in found] == [message.key for message in many]


def test_an_append_of_commands_that_fails_leaves_nothing(log: Log) -> None:
    log.open()
    with pytest.raises(LogUnusable):
        log.append_commands([Message(b"a", b"1"), Message(b"b", TOO_LARGE)], after=log.end_of_commands())
    assert list(log.commands(0, log.end_of_commands())) == []
    (offset,) = log.append_commands([Message(b"c", b"3")], after=log.end_of_commands())
    assert [(one.offset, one.key) for one in log.commands(0, log.end_of_commands())] == [(offset, b"c")]


def test_commands_are_appended_only_at_the_end_that_was_seen(log: Log, site: Site) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    log.seek_commands(0)
    assert log.append_commands([], after=0) == []
    seen = log.end_of_commands()
    first = log.append_commands([Message(b"a", b"1"), Message(b"b", b"2")], after=seen)
    for late in (seen, first[0], first[-1]):
        with pytest.raises(LogMoved):
            log.append_commands([Message(b"a", b"late")], after=late)
    caught_up = []
    while len(caught_up) < 2:
        polled = log.poll(timeout_s=0.1, max_records=10)
        caught_up += polled.commands
    second = log.append_commands([Message(b"a", b"3")], after=polled.next_command)
    found = list(log.commands(0, log.end_of_commands()))
    assert [(one.offset, one.value) for one in found] == list(
        zip([*first, *second], [b"1", b"2", b"3"], strict=True)
    )


def test_commands_that_cannot_be_made_leave_nothing(log: Log) -> None:
    def made() -> Iterator[Message]:
        yield Message(b"a", b"1")
        raise ZeroDivisionError

    log.open()
    with pytest.raises(ZeroDivisionError):
        log.append_commands(made(), after=log.end_of_commands())
    (offset,) = log.append_commands((Message(b"b", b"2") for _ in range(1)), after=log.end_of_commands())
    assert [(one.offset, one.key) for one in log.commands(0, log.end_of_commands())] == [(offset, b"b")]


# ---- waiting


def test_wake_ends_a_poll(log: Log, site: Site) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    settle(log)
    threading.Timer(0.2, log.wake).start()
    started = time.monotonic()
    log.poll(timeout_s=WITHIN_S, max_records=10)
    assert 0.1 < time.monotonic() - started < WITHIN_S / 2


def test_wake_ends_the_next_poll(log: Log, site: Site) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    log.wake()
    started = time.monotonic()
    log.poll(timeout_s=WITHIN_S, max_records=10)
    assert time.monotonic() - started < WITHIN_S / 2
    started = time.monotonic()
    log.poll(timeout_s=0.3, max_records=10)
    assert time.monotonic() - started >= 0.25  # a wake counts once


@pytest.mark.parametrize("what", ["event", "command"])
def test_a_poll_ends_when_something_comes(log: Log, site: Site, what: str) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    log.seek_commands(0)
    settle(log)
    if what == "event":
        threading.Timer(0.2, log.append_events, (TOPIC, messages(b"now"))).start()
    else:
        log.append_commands([Message(b"q", b"now")], after=log.end_of_commands())
    started = time.monotonic()
    polled = log.poll(timeout_s=WITHIN_S, max_records=10)
    assert time.monotonic() - started < WITHIN_S / 2
    found = polled.commands or polled.chunks[0].records
    assert [record.value for record in found] == [b"now"]


def test_threads_append_while_the_owner_reads(log: Log, site: Site) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    placed: list[tuple[int, int]] = []

    def produce(number: int) -> None:
        for turn in range(10):
            placed.extend(log.append_events(TOPIC, messages(*[b"%d.%d" % (number, turn)] * 5)))

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    chunks = events(log, 200)
    for thread in threads:
        thread.join()
    assert sorted(offset for _, offset in placed) == list(range(200))
    found = values(chunks)
    for number in range(4):
        mine = [value for value in found if value is not None and value.startswith(b"%d." % number)]
        assert mine == [b"%d.%d" % (number, turn) for turn in range(10) for _ in range(5)]


# ---- limits and ends


def test_an_event_that_is_too_large_is_refused(log: Log, site: Site) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    with pytest.raises(LogUnusable, match="larger"):
        log.append_events(TOPIC, messages(b"fits", TOO_LARGE))
    log.append_events(TOPIC, messages(b"fits"))
    assert values(events(log, 1)) == [b"fits"]


def test_a_closed_log_says_so_and_can_be_opened_again(log: Log, site: Site) -> None:
    begin(log, TOPIC, partitions=site.partitions)
    log.append_events(TOPIC, messages(b"0"))
    log.commit(commit(position=(1, 0)))
    log.close()
    log.close()
    assert is_closed(lambda: log.append_events(TOPIC, messages(b"1")))
    assert is_closed(lambda: log.poll(timeout_s=0, max_records=1))
    assert is_closed(lambda: log.commit(commit(position=(1, 0))))
    assert is_closed(lambda: log.append_commands([Message(b"a", b"1")], after=0))
    begin(log, TOPIC, partitions=site.partitions)
    log.append_events(TOPIC, messages(b"2"))
    assert values(events(log, 1)) == [b"2"]
