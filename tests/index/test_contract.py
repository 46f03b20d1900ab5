"""Every index keeps the contract."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.index.contract import CHECKS
from tests.index.factories import FACTORIES
from tests.index.worlds import Factory


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("factory", FACTORIES, ids=lambda factory: factory.name)
def test_contract(factory: Factory, check: Callable[[Factory], None]) -> None:
    check(factory)
