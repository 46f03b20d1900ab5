"""How many events go at a time, for what the last ones have matched."""

from __future__ import annotations

from service.pace import MOST_MATCHES, Pace


def test_at_first_every_query_may_match_every_event() -> None:
    assert Pace(5_000).events(5_000) == MOST_MATCHES // 5_000
    assert Pace(0).events(0) == MOST_MATCHES
    assert Pace(10**9).events(10**9) == 1, "an event alone is always let through"


def test_it_grows_by_steps_to_what_fits() -> None:
    pace, sizes = Pace(10_000), []
    for _ in range(5):
        sizes.append(pace.events(10_000))
        pace.took(sizes[-1], 2 * sizes[-1], sizes[-1])
    assert sizes == [104, 832, 3_355, 3_355, 3_355], "never so many that it might come to far too much"


def test_few_events_do_not_hold_up_the_many_that_follow() -> None:
    pace = Pace(10)
    pace.took(1, 1, pace.events(10))
    assert pace.events(10) > 100_000


def test_what_matches_much_goes_in_small_pieces_at_once() -> None:
    pace = Pace(0)
    pace.added(3)
    pace.took(1_000, 4_000_000, pace.events(3))
    assert pace.events(4_000) == MOST_MATCHES // 4_000
    pace.took(10, 0, pace.events(4_000))
    pace.added(50_000)
    assert pace.events(54_000) == MOST_MATCHES // 50_000, "queries that came since may match"
