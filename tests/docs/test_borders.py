"""The page on borders tells the truth: each of its examples passes, and names what it is about."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from service.__main__ import main

PAGE = (Path(__file__).parents[2] / "docs" / "borders.md").read_text()
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: re.findall("name: (.*)", example)[0])
def test_an_example(example: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "example.yaml"
    file.write_text(example)
    code = main(["test", str(file)])
    told = capsys.readouterr()
    assert code == 0, told.out + told.err


def test_every_control_and_reason_is_explained() -> None:
    controls = (
        "initial",
        "keep",
        "for",
        "cooldown",
        "once",
        "cross",
        "expires_at",
        "stream_ttl",
        "stale_after",
        "dedup",
    )
    assert [name for name in controls if f"**`{name}`**" not in PAGE] == []
    reasons = ("event", "registered", "updated", "deleted", "expired", "disabled", "enabled", "quarantined")
    reasons += ("stream_removed", "dwell", "cooldown")
    assert [reason for reason in reasons if f"`{reason}`" not in PAGE] == []
