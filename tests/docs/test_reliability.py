"""docs/reliability.md: every test and file that it names is there."""

from __future__ import annotations

import re

from tests.docs.test_threat_model import ROOT, functions_in

PAGE = (ROOT / "docs" / "reliability.md").read_text()
#: A file, of the tests where nothing else is said; a test in it; or a test in the file that was named before.
NAMED = re.compile(r"`((?:[\w-]+/)+[\w.-]+)?(?:::(\w+))?`")


def test_every_test_that_is_named_exists() -> None:
    found, missing, file = 0, [], ""
    for named, test in NAMED.findall(PAGE):
        file = (named if (ROOT / named).exists() else f"tests/{named}") if named else file
        found += bool(test)
        if not (ROOT / file).exists() or (test and test not in functions_in(file)):
            missing.append(f"{file}::{test}")
    assert found > 15
    assert not missing
