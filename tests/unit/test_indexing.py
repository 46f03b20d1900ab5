"""What a setting may say about how queries are indexed, and that it is done."""

from __future__ import annotations

import numpy as np
import pytest

from service.index.default.mixed import DefaultIndex
from service.indexing import index_of, read_overrides
from service.language import parse_source
from service.settings import SettingsError, load_settings

SOURCE = parse_source("quotes", {"attributes": {"symbol": "category", "price": "number"}})


def structures(text: str, *, symbols: bool) -> list[str]:
    """What holds 3,000 boxes of prices, each of one symbol too or of all."""
    index = index_of(SOURCE, read_overrides(text))
    assert isinstance(index, DefaultIndex)
    lo = np.stack(
        [np.arange(3_000.0) % 100 if symbols else np.full(3_000, -np.inf), np.arange(3_000.0)], axis=1
    )
    hi = np.stack([lo[:, 0] + 1 if symbols else np.full(3_000, np.inf), lo[:, 1] + 5], axis=1)
    index.insert(np.arange(3_000, dtype=np.int32), lo, hi)
    return [part.structure for part in index.views() if part.structure != "delta"]


def test_without_a_word_the_model_chooses() -> None:
    assert structures("auto", symbols=False) == ["windows"]


@pytest.mark.parametrize(
    "text", ["scan", "quotes=scan", "auto,quotes:price=scan", "quotes=auto , quotes:price=scan"]
)
def test_a_structure_is_asked_for(text: str) -> None:
    assert structures(text, symbols=False) == ["scan"]


def test_what_is_asked_of_others_is_no_matter() -> None:
    assert structures("ais=scan,quotes:symbol+price=scan,ais:price=scan", symbols=False) == ["windows"]
    assert structures("quotes:price+symbol=scan", symbols=True) == ["scan"]


@pytest.mark.parametrize("every", ["scan", "quotes=scan", "auto,quotes=scan"])
def test_what_is_asked_of_some_leaves_what_is_asked_of_all(every: str) -> None:
    text = f"{every},quotes:symbol+price=kd"
    assert structures(text, symbols=False) == ["scan"]
    assert structures(text, symbols=True) == ["kd"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fast", "'fast' must be one of auto, "),
        ("windows", "'windows' must be one of auto, "),
        ("ais:lat+lon=windows", "'windows' must be one of auto, "),
        ("=scan", "NAME=STRUCTURE"),
        ("ais:=scan", "NAME=STRUCTURE"),
        ("ais:lat+=scan", "NAME=STRUCTURE"),
        ("", "must be one of auto, "),
    ],
)
def test_what_cannot_be_is_refused(text: str, says: str) -> None:
    with pytest.raises(SettingsError, match="setting 'index'") as caught:
        load_settings({"index": text})
    assert says in str(caught.value)
