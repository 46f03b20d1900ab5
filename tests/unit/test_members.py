"""Files of collections as bytes: what reading them takes."""

from __future__ import annotations

import tracemalloc

import pytest

from service.members import CSV, Reading, members
from service.model import AttributeType, Reason, Refusal, Source

READING = Reading(Source("s", {"x": AttributeType.NUMBER}, "events.s"), tags=["note"], max_bytes=10_000)
MB = 1 << 20


def refused(raw: bytes) -> Refusal:
    with pytest.raises(Refusal) as found:
        list(members(CSV, raw, READING))
    return found.value


def test_a_csv_file_is_not_in_memory_as_text() -> None:
    line = ("id,x.gt\na," + "\N{ROCKET}" * (4 * MB)).encode()
    tracemalloc.start()
    try:
        assert refused(line).reason is Reason.TOO_LARGE
        assert tracemalloc.get_traced_memory()[1] < len(line) // 2
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("before", [0, 7, MB - 1, MB, 2 * MB + 3])
@pytest.mark.parametrize("wrong", [b"\xff", b"\xe2\x82", b"\xe2\x82\n", b"\xed\xa0\x80"])
def test_a_byte_that_is_not_utf_8_is_told_with_its_place(before: int, wrong: bytes) -> None:
    told = refused(b"a" * before + wrong)
    assert (told.reason, told.detail) == (Reason.SYNTAX, f"byte {before} is not UTF-8")


def test_signs_of_several_bytes_may_lie_across_pieces() -> None:
    note = "\N{ROCKET}" * 1_000
    for shift in range(5):
        lines = b"id,note\n" + b"\n" * shift + "\n".join([f"a,{note}"] * 300).encode()
        found = [member.body for member in members(CSV, lines, READING)]
        assert found == [{"tags": {"note": note}}] * 300
