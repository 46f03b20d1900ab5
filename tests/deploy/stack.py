"""The files of the development stack, parsed: what the tests compare with the code and with each other."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[2]


class Instruction(NamedTuple):
    """One instruction of a Dockerfile, its continuation lines joined."""

    stage: str
    name: str
    flags: list[str]
    rest: str

    @property
    def words(self) -> list[str]:
        """The arguments, of the shell form or the JSON form."""
        return json.loads(self.rest) if self.rest.startswith("[") else shlex.split(self.rest)


def dockerfile() -> list[Instruction]:
    """The instructions of the Dockerfile in order. Raises ValueError on one that is none."""
    text = "\n".join(line for line in _read("Dockerfile").splitlines() if not line.lstrip().startswith("#"))
    parsed: list[Instruction] = []
    stage = ""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if not line.strip():
            continue
        name, *rest = line.split(maxsplit=1)
        if name not in _INSTRUCTIONS or not rest:
            raise ValueError(f"no instruction: {line}")
        words = rest[0].split()
        flags = [word for word in words if word.startswith("--")][: _leading_flags(words)]
        if name == "FROM":
            stage = words[words.index("AS") + 1]
        parsed.append(Instruction(stage, name, flags, rest[0].split(maxsplit=len(flags))[-1]))
    return parsed


_INSTRUCTIONS = frozenset(
    ("FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD")
)


def _leading_flags(words: list[str]) -> int:
    return next((place for place, word in enumerate(words) if not word.startswith("--")), len(words))


def compose() -> dict[str, Any]:
    return yaml.safe_load(_read("docker-compose.yml"))


def prometheus() -> dict[str, Any]:
    return yaml.safe_load(_read("deploy/prometheus/prometheus.yml"))


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(_read("deploy/prometheus/alerts.yml"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    return json.loads(_read("deploy/grafana/dashboards/rangewatch.json"))


def panel_queries() -> list[tuple[str, str]]:
    """(title, PromQL) of every target of every panel, with Grafana's variables as for all sources."""
    return [
        (panel["title"], target["expr"].replace("$__rate_interval", "1m").replace("$source", ".*"))
        for panel in dashboard()["panels"]
        for target in panel["targets"]
    ]


def _read(path: str) -> str:
    return (ROOT / path).read_text()
