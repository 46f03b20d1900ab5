"""The packages that we depend on: what can be said of them without a network.

Held here: everything is pinned by hash, is what is installed, may be used, and is newer than the flaws listed
below. Flaws that became known since are for the advisories, which ``make audit`` asks; held here is only what
CI makes of their answer.
"""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.deploy.stack import ROOT


class Locked(NamedTuple):
    version: Version
    marker: Marker | None
    hashes: list[str]


def read_lock(text: str) -> dict[str, Locked]:
    """The packages of a lock file. Raises ValueError on a line that is no pinned package."""
    found: dict[str, Locked] = {}
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        pinned = re.fullmatch(r"(\S+)==(\S+)(?: ; ([^\\]*?))?((?:\s+--hash=sha256:[0-9a-f]{64})+)\s*", line)
        if pinned is None:
            raise ValueError(f"not pinned by hash: {line[:80]}")
        name, version, marker, hashes = pinned.groups()
        found[canonicalize_name(name)] = Locked(
            Version(version), Marker(marker) if marker else None, hashes.split()
        )
    return found


LOCK = read_lock((ROOT / "requirements.lock").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DIRECT = [
    Requirement(text)
    for texts in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    for text in texts
]

#: Package, the first version without the flaw, the flaw. What was known when this was written.
FLAWS = (
    ("certifi", "2024.7.4", "CVE-2024-39689"),
    ("fonttools", "4.60.2", "CVE-2025-66034"),
    ("h11", "0.16.0", "CVE-2025-43859"),
    ("idna", "3.7", "CVE-2024-3651"),
    ("pillow", "11.3.0", "CVE-2025-48379"),
    ("pyarrow", "14.0.1", "CVE-2023-47248"),
    ("pydantic", "2.4.0", "CVE-2024-3772"),
    ("pygments", "2.15.0", "CVE-2022-40896"),
    ("requests", "2.32.4", "CVE-2024-47081"),
    ("starlette", "0.49.1", "CVE-2025-62727"),
    ("urllib3", "2.6.0", "CVE-2025-66418"),
    ("werkzeug", "3.1.4", "CVE-2025-66221"),
)

PERMITTED = re.compile(
    r"MIT|BSD|Apache|ISC|PSF|Python Software Foundation|MPL-2\.0|Mozilla Public License 2\.0|HPND|Unlicense",
    re.I,
)
FORBIDDEN = re.compile(r"GPL|General Public|SSPL|Business Source|Commons Clause|Proprietary", re.I)

#: What says something else, or nothing, and why it may be used all the same.
CONSIDERED = {
    "crc32c": "LGPL: imported as it comes, never changed, never linked into anything of ours",
    "superintervals": "MIT by its LICENSE file, which the metadata do not repeat",
}


def test_the_reader_of_the_lock_refuses_what_is_not_pinned() -> None:
    zeros, ones = "0" * 64, "1" * 64
    good = (
        f"a==1 \\\n    --hash=sha256:{zeros}\n    # via b\n"
        f"c==2 ; sys_platform == 'win32' \\\n    --hash=sha256:{ones}\n"
    )
    assert [(name, str(one.version)) for name, one in read_lock(good).items()] == [("a", "1"), ("c", "2")]
    for bad in ("a==1", f"a>=1 --hash=sha256:{zeros}", "--index-url https://example.org/simple", "-e ."):
        with pytest.raises(ValueError, match="not pinned"):
            read_lock(bad)


def test_what_we_ask_for_is_locked() -> None:
    for wanted in DIRECT:
        locked = LOCK[canonicalize_name(wanted.name)]
        assert wanted.specifier.contains(locked.version), wanted


def test_what_is_installed_is_what_is_locked() -> None:
    wrong = {}
    for name, locked in LOCK.items():
        if locked.marker is None or locked.marker.evaluate():
            try:
                if Version(distribution(name).version) != locked.version:
                    wrong[name] = distribution(name).version
            except PackageNotFoundError:
                wrong[name] = "missing"
    assert not wrong, "make setup installs what is locked"


@pytest.mark.parametrize(("name", "first_good", "flaw"), FLAWS)
def test_no_package_is_as_old_as_a_known_flaw(name: str, first_good: str, flaw: str) -> None:
    assert LOCK[name].version >= Version(first_good), flaw


@pytest.mark.parametrize(
    ("audit", "code", "said"),
    [
        ("exit 0", 0, "know no flaw"),
        ("echo idna 3.6 CVE-2024-3651; exit 2", 1, "idna 3.6 CVE-2024-3651"),
        ("echo no route to host >&2; exit 2", 0, "NOT DONE"),
        ("exec sleep 600", 0, "NOT DONE"),
    ],
)
def test_a_flaw_that_is_found_fails_ci_and_a_network_that_is_away_does_not(
    tmp_path: Path, audit: str, code: int, said: str
) -> None:
    make = tmp_path / "make"
    make.write_text(f'#!/bin/sh\n[ "$*" = "--silent audit" ] || exit 3\n{audit}\n')
    make.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    timeout_s = "0.1" if "sleep" in audit else "60"
    given = {**os.environ, "PATH": path, "AUDIT_TIMEOUT_S": timeout_s}
    command = ["bash", str(ROOT / ".ci/audit")]
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")
    assert said in done.stdout


def test_ci_asks_the_advisories_with_what_is_pinned_by_hash() -> None:
    steps = (ROOT / ".ci/run").read_text().splitlines()
    assert steps.index("bash .ci/audit") < steps.index("make test")
    assert "pip-audit" in read_lock((ROOT / "deploy/audit-requirements.lock").read_text())
    assert "--require-hashes --requirement deploy/audit-requirements.lock" in (ROOT / "Makefile").read_text()


def licence(found: Distribution) -> str:
    """What a package says of its licence, in whichever of three ways."""
    told = [found.metadata.get("License-Expression") or ""]
    told += [one for one in found.metadata.get_all("Classifier") or [] if one.startswith("License ::")]
    if not any(told):
        told.append((found.metadata.get("License") or "")[:200])
    return " ".join(told).strip()


def test_every_licence_permits_use() -> None:
    told = {}
    for name in LOCK:
        try:
            told[name] = licence(distribution(name))
        except PackageNotFoundError:  # for another system
            continue
    assert len(told) > 50
    assert CONSIDERED.keys() <= told.keys()
    for name in CONSIDERED:
        told.pop(name)
    refused = {
        name: text for name, text in told.items() if not PERMITTED.search(text) or FORBIDDEN.search(text)
    }
    assert not refused


def test_every_package_that_we_ask_for_has_a_reason() -> None:
    reasons = (ROOT / "docs/adr/0004-dependencies.md").read_text()
    benchmarks = (ROOT / "docs/adr/0008-benchmarks-and-their-packages.md").read_text()
    missing = [one.name for one in DIRECT if one.name not in reasons + benchmarks]
    assert not missing
