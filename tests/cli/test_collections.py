"""``rangewatch collections`` against a service, as a user runs it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import Served, rangewatch


@pytest.fixture
def source(client: httpx.Client, request: pytest.FixtureRequest) -> str:
    """A source that is named like the test."""
    name = str(request.node.name)
    body = {"attributes": {"x": "number", "y": "number"}}
    client.put(f"/v1/sources/{name}", json=body).raise_for_status()
    return name


def features(*ids: str) -> bytes:
    ring = [[0, 0], [4, 0], [4, 4], [0, 0]]
    made: list[dict[str, Any]] = [
        {
            "type": "Feature",
            "properties": {"key": id, "owner": "port"},
            "geometry": {"type": "Polygon", "coordinates": [ring]},
        }
        for id in ids
    ]
    return json.dumps({"type": "FeatureCollection", "features": made}).encode()


def test_a_file_is_put_again_and_deleted(
    service: Served, client: httpx.Client, source: str, tmp_path: Path
) -> None:
    file = tmp_path / "zones.geojson.gz"
    options = ["--source", source, "--lon", "x", "--lat", "y", "--id", "key", "--tags", "owner"]
    options += [
        "--default",
        "on=enter",
        "--default",
        "on=leave",
        "--default",
        "for=30s",
        "--url",
        service.url,
    ]
    for ids, said in (
        (("a", "b"), "2 queries: 2 created, 0 replaced, 0 unchanged, 0 deleted"),
        (("b", "c"), "2 queries: 1 created, 0 replaced, 1 unchanged, 1 deleted"),
    ):
        file.write_bytes(gzip.compress(features(*ids)))
        done = rangewatch("collections", "put", source, file, *options)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{source}: {said}\n", "")
    query = client.get(f"/v1/queries/{source}:c").json()
    assert (query["on"], query["for"]) == (["enter", "leave"], 30_000)
    assert query["tags"] == {"collection": source, "owner": "port"}
    listed = rangewatch("collections", "list", "--url", service.url)
    assert f"{source}\t{source}\t2 queries\tfrom geojson\n" in listed.stdout
    deleted = rangewatch("collections", "delete", source, "--url", service.url)
    assert (deleted.returncode, deleted.stdout) == (0, f"{source} deleted\n")
    again = rangewatch("collections", "delete", source, "--url", service.url)
    assert again.returncode == 1
    assert "there is no collection" in again.stderr


def test_a_refused_file_names_its_lines_and_changes_nothing(
    service: Served, client: httpx.Client, source: str, tmp_path: Path
) -> None:
    file = tmp_path / "limits.csv"
    file.write_text("id,x.gt\na,1\nb b,2\nc,high\n")
    done = rangewatch("collections", "put", source, file, "--source", source, "--url", service.url)
    assert (done.returncode, done.stdout) == (1, "")
    assert "line 3, id: " in done.stderr
    assert "line 4, x.gt: " in done.stderr
    assert client.get(f"/v1/collections/{source}").status_code == 404


def test_a_file_of_another_kind_is_wrong_usage(service: Served, source: str, tmp_path: Path) -> None:
    file = tmp_path / "zones.shp"
    file.write_bytes(b"")
    done = rangewatch("collections", "put", source, file, "--source", source, "--url", service.url)
    assert done.returncode == 2
    assert ".geojson" in done.stderr
    missing = rangewatch("collections", "put", source, tmp_path / "no.csv", "--source", source)
    assert missing.returncode == 2
    nobody = tmp_path / "a.csv"
    nobody.write_text("id,x.gt\n")
    done = rangewatch("collections", "put", source, nobody, "--source", "nobody", "--url", service.url)
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no source 'nobody'" in done.stderr
