"""A step that puts a collection: its features or rows as the file that a client would send.

What a file means, and what of it differs from what is there, is decided by the code behind
``PUT /v1/collections/{name}``. Not for: HTTP, nor files of their own.
"""

from __future__ import annotations

import csv
import io
from typing import NamedTuple

from service.engine.collections import Failures, planned
from service.members import CSV, GEOJSON, Reading, members
from service.model import Reason, Refusal
from service.rules.document import Node
from service.rules.parties import FIELD, parted
from service.rules.stage import Stage
from service.tenants import key_of

FIELDS = ("name", "source", "features", "rows", "lon", "lat", FIELD)


class PutCollection(NamedTuple):
    """``body`` is the file; ``lon`` and ``lat`` are the attributes of its positions."""

    name: str
    source: str
    kind: str
    body: bytes
    lon: str
    lat: str
    tenant: str


def read_collection(node: Node, source: str) -> PutCollection:
    """A collection over ``source``. Raises RuleFileError."""
    node.fields(FIELDS)
    fields, tenant = parted(node)
    if "name" not in fields:
        raise node.error("has no `name`")
    if ("features" in fields) == ("rows" in fields):
        raise node.error("must have either `features` or `rows`")
    lon, lat = (fields[name].text() if name in fields else name for name in ("lon", "lat"))
    if "features" in fields:
        fields["features"].items()
        kind = GEOJSON
        body = f'{{"type": "FeatureCollection", "features": {fields["features"].json_text()}}}'
    else:
        kind, body = CSV, _table(fields["rows"])
    return PutCollection(fields["name"].text(), source, kind, body.encode(), lon, lat, tenant)


def _table(node: Node) -> str:
    """Rows as CSV, with a column for each field that any of them has."""
    rows = [row.mapping() for row in node.items()]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(name, row[name]) if name in row else "" for name in columns])
    return text.getvalue()


def _cell(column: str, node: Node) -> str:
    if isinstance(node.value, list):
        return (" " if column in ("on", "select") else "|").join(_cell(column, one) for one in node.value)
    if node.value is None:
        return ""
    return node.value if isinstance(node.value, str) else node.json_text()


def put_collection(act: PutCollection, stage: Stage) -> None:
    """Raises the Refusal of the first member that is refused, or of the whole."""
    catalog = stage.engine.catalog
    key = key_of(act.tenant, act.name)
    snapshot = catalog.snapshot(key)
    source = snapshot.sources.get(act.source)
    if source is None:
        raise Refusal(Reason.UNKNOWN_SOURCE, "source", f"there is no source {act.source!r}")
    found = members(act.kind, act.body, Reading(source, act.lon, act.lat))
    made = planned(key, act.source, act.kind, found, snapshot, now_ms=stage.now_ms, limits=catalog.limits)
    if isinstance(made, Failures):
        raise made.told[0].refusal
    if made.commands:
        stage.commands(made.commands)
