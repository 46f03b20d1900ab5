"""The one table of conformance cases that all drivers run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.shared import SHARED


@dataclass(frozen=True)
class Case:
    id: str
    body: dict[str, Any]

    @property
    def steps(self) -> list[dict[str, Any]]:
        return self.body["steps"]

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(self.body.get("needs", ()))

    @property
    def sources(self) -> dict[str | None, dict[str, Any]]:
        """Source definitions by the name that steps use; None is the case's own."""
        return {None: self.body["source"], **self.body.get("sources", {})}


def _read(path: Path) -> list[Case]:
    bodies = [json.loads(line) for line in path.read_text().splitlines()]
    return [Case(body["id"], body) for body in bodies]


CASES = [case for name in ("bugs", "peers", "contract") for case in _read(SHARED / "cases" / f"{name}.jsonl")]
