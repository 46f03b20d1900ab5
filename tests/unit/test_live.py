"""The hub: who hears what, in which order, and who is cut."""

from __future__ import annotations

import asyncio
import threading

import pytest

from service.live import MOVED, PIECE_BYTES, SLOW, STOPPING, Crowded, Feed, Hub
from service.log.port import Output


def outputs(*values: int) -> list[Output]:
    return [Output("borders", b"k", str(value).encode()) for value in values]


async def read(feed: Feed) -> tuple[list[tuple[int, list[int]]], str]:
    committed, cut = await feed.next(0.0)
    return [(one.number, [int(output.value or b"") for output in one.outputs]) for one in committed], cut


def test_commits_come_in_order_with_their_numbers() -> None:
    async def listen() -> None:
        hub = Hub(max_feeds=2, max_feeds_tenant=2, max_records=100)
        hub.committed(outputs(0))
        feed, other = hub.open(), hub.open()
        assert hub.mark(uncommitted=False) == 1 and hub.mark(uncommitted=True) == 2
        hub.committed(outputs(1, 2))
        hub.committed([])
        hub.committed(outputs(3))
        for one in (feed, other):
            assert await read(one) == ([(1, [1, 2]), (3, [3])], "")
            assert await read(one) == ([], "")
        hub.close(other)
        hub.committed(outputs(4))
        assert await read(other) == ([], "")
        assert await read(feed) == ([(4, [4])], "")

    asyncio.run(listen())


def test_what_begins_otherwise_neither_comes_nor_counts_nor_wakes() -> None:
    async def listen() -> None:
        hub = Hub(max_feeds=2, max_feeds_tenant=2, max_records=2)
        feed = hub.open(b"7")
        hub.committed(outputs(1, 2, 3, 4))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(feed.next(60.0), 0.05)
        hub.committed(outputs(5, 71, 6, 72))
        assert await read(feed) == ([(1, [71, 72])], "")

    asyncio.run(listen())


def test_whoever_is_slow_is_cut_and_nobody_else() -> None:
    async def listen() -> None:
        hub = Hub(max_feeds=2, max_feeds_tenant=2, max_records=3)
        slow, quick = hub.open(), hub.open()
        for number in range(4):
            hub.committed(outputs(number))
            assert await read(quick) == ([(number, [number])], "")
        assert await read(slow) == ([], SLOW), "what waited is lost"
        assert len(hub) == 1, "it makes room for others"
        hub.committed(outputs(9))
        assert await read(slow) == ([], SLOW)
        assert await read(quick) == ([(4, [9])], "")

    asyncio.run(listen())


def test_whoever_is_behind_by_too_many_bytes_is_cut() -> None:
    async def listen() -> None:
        hub = Hub(max_feeds=3, max_feeds_tenant=3, max_records=100)
        slow, quick, patient = hub.open(max_bytes=4), hub.open(max_bytes=4), hub.open()
        hub.committed(outputs(11, 22))
        for feed in (slow, quick):
            assert await read(feed) == ([(0, [11, 22])], ""), "so much may wait"
        hub.committed(outputs(33, 44))
        assert await read(quick) == ([(1, [33, 44])], "")
        assert len(hub) == 3, "what was read counts no more"
        hub.committed(outputs(5))
        assert await read(quick) == ([(2, [5])], "")
        assert await read(slow) == ([], SLOW)
        assert await read(patient) == ([(0, [11, 22]), (1, [33, 44]), (2, [5])], "")
        assert len(hub) == 2

    asyncio.run(listen())


def test_what_waits_is_read_in_pieces_and_stays_in_the_feed_until_then() -> None:
    async def listen() -> None:
        sizes = [5, PIECE_BYTES - 6, 3, 10 * PIECE_BYTES, 1, 2, PIECE_BYTES]
        records = [Output("borders", b"k", b"x" * size) for size in sizes]
        hub = Hub(max_feeds=2, max_feeds_tenant=2, max_records=len(sizes) + 2)
        feed, slow = hub.open(), hub.open(max_bytes=sum(sizes))
        hub.committed(records[:4])
        hub.committed(records[4:])

        (piece,), cut = await slow.next(0.0)
        assert (piece.outputs, cut) == (records[:3], "")
        freed = sum(sizes[:3])
        hub.committed([Output("borders", b"k", b"x" * freed)])
        assert len(hub) == 2
        hub.committed(outputs(7))
        assert await slow.next(0.0) == ([], SLOW), "all but the piece is lost"

        hub.moved()
        pieces = [await feed.next(0.0) for _ in range(6)]
        found = [
            [(one.number, [len(output.value) for output in one.outputs]) for one in committed]
            for committed, _ in pieces
        ]
        assert found == [
            [(0, sizes[:3])],
            [(0, sizes[3:4])],
            [(1, sizes[4:])],
            [(2, [freed])],
            [(3, [1])],
            [],
        ]
        assert [cut for _, cut in pieces] == ["", "", "", "", MOVED, MOVED]

    asyncio.run(listen())


def test_moves_cut_everybody_after_what_was_committed() -> None:
    async def listen() -> None:
        hub = Hub(max_feeds=1, max_feeds_tenant=1, max_records=3)
        feed = hub.open()
        with pytest.raises(Crowded, match="1 clients"):
            hub.open()
        hub.committed(outputs(1))
        hub.moved()
        hub.committed(outputs(2))
        assert await read(feed) == ([(0, [1])], MOVED)
        hub.open()

    asyncio.run(listen())


def test_a_stop_cuts_everybody_and_whoever_comes_later() -> None:
    async def listen() -> None:
        hub = Hub(max_feeds=2, max_feeds_tenant=2, max_records=3)
        feed, other = hub.open(), hub.open(b"other")
        hub.committed(outputs(1))
        hub.stop()
        hub.committed(outputs(2))
        assert await read(feed) == ([(0, [1])], STOPPING), "what waits is still read"
        assert await read(other) == ([], STOPPING)
        assert await read(hub.open()) == ([], STOPPING)

    asyncio.run(listen())


def test_a_listener_wakes_for_a_commit_of_another_thread() -> None:
    async def listen() -> None:
        hub = Hub(max_feeds=1, max_feeds_tenant=1, max_records=3)
        feed = hub.open()
        thread = threading.Thread(target=hub.committed, args=(outputs(7),))
        waiting = asyncio.create_task(feed.next(60.0))
        await asyncio.sleep(0)
        thread.start()
        committed, _ = await waiting
        assert [one.number for one in committed] == [0]
        thread.join()
        return hub

    hub = asyncio.run(listen())
    hub.committed(outputs(8))  # the listener's loop has ended


def test_one_tenant_leaves_room_for_another() -> None:
    async def listen() -> None:
        hub = Hub(max_feeds=3, max_feeds_tenant=2, max_records=3)
        mine = [hub.open(b"mine") for _ in range(2)]
        with pytest.raises(Crowded, match="2 clients of this tenant") as crowded:
            hub.open(b"mine")
        assert crowded.value.of_its_own
        hub.open(b"theirs")
        with pytest.raises(Crowded, match="3 clients listen") as crowded:
            hub.open(b"theirs")
        assert not crowded.value.of_its_own
        hub.close(mine[0])
        hub.open(b"mine")

    asyncio.run(listen())
