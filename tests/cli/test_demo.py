"""The demo, as ``make run`` starts it: the real data, the totals that were computed independently of it."""

from __future__ import annotations

import hashlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from deploy.kafka.broker import free_ports
from tests.api.harness import TIMEOUT_S, eventually
from tests.cli.conftest import environment
from tests.shared import SHARED

DEMO = Path(__file__).parents[2] / "deploy" / "demo"

#: events, matches, enters, leaves, refused, late
TOTALS = {"weather": (26_115, 93_631, 11_082, 11_064, 0, 0), "stocks": (12_154, 20_606, 3_061, 3_052, 0, 0)}


def totals(output: str) -> dict[str, tuple[int, ...]]:
    """The rows of the closing table."""
    rows = re.findall(r"│ (\w+) +│ (.+) │\n", output)
    return {name: tuple(int(cell.replace(",", "")) for cell in cells.split("│")) for name, cells in rows}


def answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[bytes], str, Path]]:
    """A demo that has shown everything and serves on."""
    folder = tmp_path_factory.mktemp("demo")
    (port,) = free_ports(1)
    out = folder / "out"
    command = [sys.executable, str(DEMO / "run.py"), "--port", str(port), "--data", str(folder)]
    with out.open("wb") as stdout:
        process = subprocess.Popen(command, stdout=stdout, stderr=stdout, env=environment())
    try:
        eventually(
            lambda: "The service goes on" in out.read_text() or process.poll() is not None, "it is shown"
        )
        yield process, f"http://127.0.0.1:{port}", out
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


def test_the_totals_are_right(started: tuple[subprocess.Popen[bytes], str, Path]) -> None:
    found = totals(started[2].read_text())
    assert {name: found[name][:6] for name in TOTALS} == TOTALS
    both = tuple(a + b for a, b in zip(*TOTALS.values(), strict=True))
    assert found["both"][:6] == both


def test_the_ticker_is_a_readable_sample_of_both_sets(
    started: tuple[subprocess.Popen[bytes], str, Path],
) -> None:
    lines = started[2].read_text().splitlines()
    changes = [line for line in lines if re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d  ", line)]
    assert 20 <= len(changes) <= 500
    for name in TOTALS:
        assert any(f"  {name}" in line and "> enters" in line for line in changes)
        assert any(
            f"  {name}" in line and re.search(r"< leaves .* after \d+ (d|h|min|s)", line) for line in changes
        )
    assert f"{len(changes)} of 28,259 changes shown" in lines
    assert not any("\x1b" in line for line in lines), "no colours where there is no terminal"


def test_what_it_says_to_try_works_and_ctrl_c_ends_it_all(
    started: tuple[subprocess.Popen[bytes], str, Path],
) -> None:
    process, url, out = started
    commands = re.findall(r"^  (curl .+)$", out.read_text(), re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        done = subprocess.run(f"{command} --fail -sS", shell=True, capture_output=True, text=True, check=True)
        assert done.stdout.startswith("{")
    assert re.search(r'"enter":\[[^]]*"my-heat"', done.stdout)
    process.send_signal(signal.SIGINT)
    assert process.wait(TIMEOUT_S) == 0
    assert not answers(f"{url}/healthz")


def test_ending_it_early_ends_the_service_too(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    command = [sys.executable, str(DEMO / "run.py"), "--port", str(port), "--data", str(tmp_path)]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()
    )
    try:
        eventually(lambda: answers(f"http://127.0.0.1:{port}/healthz"), "the service is up")
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
        assert not answers(f"http://127.0.0.1:{port}/healthz")
    finally:
        process.kill()
        process.wait()


def test_the_data_are_those_that_the_totals_are_of() -> None:
    sums = dict(
        re.findall(r"^([0-9a-f]{64})  (\S+)$", (SHARED / "data" / "README.md").read_text(), re.MULTILINE)
    )
    known = set(sums)
    files = [file for file in DEMO.iterdir() if file.name.endswith((".csv.gz", ".jsonl"))]
    assert len(files) == 4
    for file in files:
        assert hashlib.sha256(file.read_bytes()).hexdigest() in known
    assert sum(file.stat().st_size for file in DEMO.rglob("*") if file.is_file()) < 2_000_000
