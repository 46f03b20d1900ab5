"""docs/formats.md tells the truth: its example runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.api.harness import running

DOC = (Path(__file__).parents[2] / "docs/formats.md").read_text()


def test_the_example_runs_as_it_stands(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", DOC, re.MULTILINE | re.DOTALL)
    with running(tmp_path) as service:
        there = example.replace("http://127.0.0.1:8080", service.url)
        assert there != example
        done = subprocess.run(
            [sys.executable, "-c", there], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        stream = service.client.get("/v1/streams/v-17", params={"source": "seen"}).json()
    assert "'queries': ['tugs']" in done.stdout
    assert stream["last"] == {"lat": 29.6, "lon": -95.0, "kind": "TUG"}
    assert stream["ts"] == 1641168000000
    assert stream["inside"] == ["tugs"]
