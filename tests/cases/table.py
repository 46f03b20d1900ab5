"""The one table of conformance cases that all drivers run, and the list of those that must wait."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.shared import SHARED

#: Features that a later release brings; a case that needs one waits, and is listed by name.
LATER = ("keep", "for", "cross", "expires_at", "stream_ttl", "stale_after")


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

    def later(self) -> list[str]:
        """Features of a later release that the case needs."""
        found = set()
        for source in self.sources.values():
            found.update(name for name in LATER if source["policies"].get(name) is not None)
        for step in self.steps:
            bodies = [step.get("query"), step.get("set"), *step.get("queries", ())]
            for body in bodies:
                if body:
                    found.update(name for name in LATER if body.get(name) is not None)
                    if "cross" in body.get("on", ()):
                        found.add("cross")
        return sorted(found)


def _read(path: Path) -> list[Case]:
    bodies = [json.loads(line) for line in path.read_text().splitlines()]
    return [Case(body["id"], body) for body in bodies]


ALL = [case for name in ("bugs", "peers", "contract") for case in _read(SHARED / "cases" / f"{name}.jsonl")]
WAITING = {case.id: case.later() for case in ALL if case.later()}
CASES = [case for case in ALL if case.id not in WAITING]
