"""Collections over HTTP: replaced by difference, all or nothing."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pyarrow
import pyarrow.parquet
import pytest

from service.api import collections
from service.engine.collections import Member
from service.members import Reading, members
from tests.api.conftest import OwnSource
from tests.api.harness import history, running, write_commands

GEOJSON = "application/geo+json"
TRIANGLE = [[[0, 0], [4, 0], [4, 4], [0, 0]]]


def feature(id: Any, geometry: Any, **properties: Any) -> dict[str, Any]:
    return {"type": "Feature", "id": id, "properties": properties, "geometry": geometry}


def polygon(rings: Any) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": rings}


def square(x: float, size: float = 1.0) -> dict[str, Any]:
    return polygon([[[x, 0], [x + size, 0], [x + size, size], [x, size], [x, 0]]])


class Own:
    """A collection that only this test uses, over a source that only it uses."""

    def __init__(self, source: OwnSource) -> None:
        self.source = source
        self.client = source.client
        self.name = f"c-{source.name}"
        self.url = f"/v1/collections/{self.name}"

    def put(self, *features: Any, headers: dict[str, str] | None = None, **params: Any) -> httpx.Response:
        body = json.dumps({"type": "FeatureCollection", "features": features}).encode()
        return self.put_file(GEOJSON, body, headers=headers, **params)

    def put_file(
        self, media: str, body: bytes, *, headers: dict[str, str] | None = None, **params: Any
    ) -> httpx.Response:
        return self.client.put(
            self.url,
            params={"source": self.source.name, "lon": "x", "lat": "y", **params},
            content=body,
            headers={"Content-Type": media, **(headers or {})},
        )

    def ids(self) -> list[str]:
        page = self.client.get("/v1/queries", params={"tag": f"collection:{self.name}"}).json()
        return [query["id"].removeprefix(f"{self.name}:") for query in page["queries"]]

    def query(self, id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(f"/v1/queries/{self.name}:{id}").raise_for_status().json()
        return found

    def borders(self) -> list[tuple[str, list[str], list[str]]]:
        """Reason, leaves and enters of each border record of the source."""
        records = self.client.get("/v1/topics/borders", params={"limit": 10_000}).json()["records"]
        cut = len(self.name) + 1
        return [
            (
                record["value"]["reason"],
                [id[cut:] for id in record["value"]["leave"]],
                [id[cut:] for id in record["value"]["enter"]],
            )
            for record in records
            if record["value"]["source"] == self.source.name
        ]


@pytest.fixture
def own(source: OwnSource) -> Own:
    return Own(source)


def counts(response: httpx.Response) -> tuple[int, ...]:
    assert response.status_code in (200, 201), response.text
    body = response.json()
    return tuple(body[name] for name in ("created", "replaced", "unchanged", "deleted", "members"))


def test_a_collection_is_replaced_by_its_difference(own: Own) -> None:
    made = own.put(feature("a", square(0)), feature("b", polygon(TRIANGLE)), feature("c", square(2)))
    assert made.status_code == 201
    assert counts(made) == (3, 0, 0, 0, 3)
    own.source.send({"stream_id": "v", "x": 3, "y": 1}, {"stream_id": "w", "x": 0.5, "y": 0.2})
    before = own.borders()
    etags = {id: own.query(id)["etag"] for id in "abc"}
    changed = own.put(
        feature("a", square(0)),
        feature("b", polygon(TRIANGLE)),
        feature("c", square(2, 0.5)),
        feature(7, square(3)),
    )
    assert changed.status_code == 200
    assert counts(changed) == (1, 1, 2, 0, 4)
    assert own.borders()[len(before) :] == [("updated", ["c"], []), ("registered", [], ["7"])]
    assert {id: own.query(id)["etag"] == etags[id] for id in "abc"} == {"a": True, "b": True, "c": False}
    assert own.ids() == ["7", "a", "b", "c"]
    assert counts(own.put(feature("b", polygon(TRIANGLE)))) == (0, 0, 1, 3, 1)
    assert [id for reason, leave, _ in own.borders() if reason == "deleted" for id in leave] == ["7", "a"]


def test_the_same_again_changes_nothing(own: Own) -> None:
    features = [feature(i, square(i)) for i in range(3)]
    first = own.put(*features)
    again = own.put(*features)
    assert (again.status_code, counts(again)) == (200, (0, 0, 3, 0, 3))
    assert again.json()["active_from"] is None
    assert again.headers["etag"] == first.headers["etag"]


def test_the_same_meaning_written_otherwise_changes_nothing(own: Own) -> None:
    holed = [[[0, 0], [9, 0], [9, 9], [0, 9], [0, 0]], [[1, 1], [2, 1], [2, 2], [1, 1]]]
    parts = [TRIANGLE, [[[10, 10], [11, 10], [11, 12], [10, 10]]]]
    first = own.put(
        feature("a", polygon(TRIANGLE)),
        feature("b", polygon(holed)),
        feature("c", {"type": "MultiPolygon", "coordinates": parts}),
        feature("d", {"type": "Point", "coordinates": [0, 1]}, radius_m=5),
        keep="-99 <= x <= 99 and -99 <= y <= 99",
    )
    own.source.send({"stream_id": "v", "x": 3, "y": 2})
    written, records = own.query("a"), own.borders()
    otherwise = own.put(
        feature("d", {"type": "Point", "coordinates": [-0.0, 1.0]}, radius_m=5.0),
        feature("a", polygon([[[4.0, 0], [-0.0, 0], [4, 4], [4, 0]]])),
        feature("b", polygon([holed[0][::-1], [[2, 2], [1, 1], [2, 1], [2, 2]]])),
        feature("c", {"type": "MultiPolygon", "coordinates": parts[::-1]}),
        keep="-99 <= y <= 99 and 99 >= x >= -99.0",
    )
    assert (counts(otherwise), otherwise.json()["active_from"]) == ((0, 0, 4, 0, 4), None)
    assert otherwise.headers["etag"] == first.headers["etag"]
    assert (own.query("a"), own.borders()) == (written, records), "it is shown as it was written first"
    assert counts(own.put(feature("a", polygon([[[4, 0], [0, 0], [4, 3], [4, 0]]])))) == (0, 1, 0, 3, 1)


def test_the_answer_holds_when_it_is_sent(own: Own) -> None:
    answer = own.put(feature("a", square(0)))
    sent = own.source.send({"stream_id": "v", "x": 1, "y": 1})
    assert sent["outputs"][0]["value"]["queries"] == [f"{own.name}:a"]
    assert answer.json()["active_from"]["positions"][0]["offset"] <= sent["positions"][0]["offset"]
    assert answer.json()["etag"] == str(answer.json()["active_from"]["command"])


def test_one_refused_member_refuses_all_and_is_named(own: Own) -> None:
    own.put(feature("a", square(0)))
    bowtie = polygon([[[0, 0], [4, 4], [4, 0], [0, 3], [0, 0]]])
    refused = own.put(
        feature("b", square(0)),
        feature("c d", square(0)),
        feature(None, square(0)),
        feature("b", square(1)),
        feature("e", bowtie),
        feature("f", {"type": "Point", "coordinates": [1, 1]}),
        feature("g", {"type": "LineString", "coordinates": [[1, 1], [2, 2]]}),
        {"type": "Point"},
        feature("h", polygon([[[0, 0], [4, "4"], [4, 0], [0, 0]]])),
        feature("i", {"type": "Point", "coordinates": [1, 1]}, radius_m=-5),
    )
    assert refused.status_code == 422
    problem = refused.json()
    assert [(one["place"], one["id"], one["field"], one["reason"]) for one in problem["failures"]] == [
        ("features[1]", "c d", "id", "bad_id"),
        ("features[2]", None, "id", "missing_field"),
        ("features[3]", "b", "id", "exists"),
        ("features[4]", "e", "geometry", "bad_value"),
        ("features[5]", "f", "properties.radius_m", "missing_field"),
        ("features[6]", "g", "geometry", "bad_value"),
        ("features[7]", None, "type", "bad_value"),
        ("features[8]", "h", "geometry", "not_a_number"),
        ("features[9]", "i", "geometry", "bad_value"),
    ]
    assert problem["refused"] == 9
    assert problem["detail"].startswith("features[1]: 'c d' must be of A-Z")
    assert "Self-intersection" in problem["failures"][3]["detail"]
    assert own.ids() == ["a"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "syntax"),
        (b"[]", "syntax"),
        (b'{"type": "FeatureCollection"}', "syntax"),
        (b'{"type": "Feature", "features": []}', "bad_value"),
        (b'{"type": "FeatureCollection", "features": [1', "syntax"),
        (b'{"type": "FeatureCollection", "features": ["\xff"]}', "syntax"),
    ],
)
def test_what_is_no_feature_collection_is_refused(own: Own, body: bytes, reason: str) -> None:
    refused = own.put_file(GEOJSON, body)
    assert (refused.status_code, refused.json()["reason"]) == (422, reason)
    assert own.client.get(own.url).status_code == 404


def test_what_is_wrong_with_the_request_is_refused(own: Own) -> None:
    def refused(response: httpx.Response) -> tuple[int, str, str]:
        problem = response.json()
        return response.status_code, problem["field"], problem["reason"]

    one = feature("a", square(0))
    assert refused(own.put(one, source="nobody")) == (422, "source", "unknown_source")
    assert refused(own.put(one, nonsense="1")) == (422, "nonsense", "unknown_field")
    assert refused(own.put_file("text/plain", b"x")) == (415, "Content-Type", "unsupported_media_type")
    assert refused(own.put(one, on="sometimes")) == (422, "on[0]", "bad_value")
    assert refused(own.put(one, lon="nix")) == (422, "geometry", "unknown_attribute")
    own.name, own.url = "bad name", "/v1/collections/bad%20name"
    assert refused(own.put(one)) == (422, "name", "bad_id")


def test_circles_boxes_and_parts(own: Own) -> None:
    two = {"type": "MultiPolygon", "coordinates": [TRIANGLE, [[[10, 10], [11, 10], [11, 12], [10, 10]]]]}
    answer = own.put(
        feature("circle", {"type": "Point", "coordinates": [0, 50]}, r=100_000),
        {"type": "Feature", "id": "box", "properties": None, "geometry": None, "bbox": [20, 0, 22, 1]},
        feature("two", two),
        feature("rect", square(30)),
        radius="r",
    )
    assert counts(answer) == (4, 0, 0, 0, 4)
    assert own.query("circle")["canonical"] == "(x, y) in circle(0, 50, 100000)"
    assert own.query("box")["canonical"] == "20 <= x <= 22 and 0 <= y <= 1"
    assert own.query("rect")["canonical"] == "30 <= x <= 31 and 0 <= y <= 1"
    events = [(0, 50.8), (0, 51), (22, 1), (22.1, 1), (3, 1), (1, 3), (10.9, 11), (31, 1)]
    sent = own.source.send(*({"stream_id": "v", "x": x, "y": y} for x, y in events))
    hits = [one["value"]["queries"] for one in sent["outputs"] if one["topic"] == "matches"]
    assert [id.rpartition(":")[2] for ids in hits for id in ids] == ["circle", "box", "two", "two", "rect"]


def test_defaults_properties_and_tags(own: Own) -> None:
    answer = own.put(
        feature("x", square(0), key="k1", owner="port", empty=""),
        id="key",
        tags=["owner", "empty"],
        on=["enter", "leave"],
        initial="ignore",
        keep="-1 <= x <= 9 and -1 <= y <= 9",
        cooldown="5s",
        once=True,
        select=["x", "kind"],
        **{"for": "30s"},
    )
    assert counts(answer) == (1, 0, 0, 0, 1)
    query = own.query("k1")
    assert query["tags"] == {"collection": own.name, "owner": "port"}
    assert (query["on"], query["initial"], query["for"]) == (["enter", "leave"], "ignore", 30_000)
    assert (query["cooldown"], query["once"], query["select"]) == (5_000, True, ["x", "kind"])
    assert query["keep"] == "-1 <= x <= 9 and -1 <= y <= 9"


def test_a_tag_of_what_is_no_text_is_its_json(own: Own) -> None:
    values = {"yes": True, "one": 1.0, "zero": 0, "some": {"a": [1, None], "b": "Hafen-Süd"}, "text": " 1 "}
    texts = {
        "yes": "true",
        "one": "1.0",
        "zero": "0",
        "some": '{"a":[1,null],"b":"Hafen-Süd"}',
        "text": " 1 ",
    }
    counts(own.put(feature("a", square(0), none=None, empty="", **values), tags=[*values, "none", "empty"]))
    assert own.query("a")["tags"] == {"collection": own.name, **texts}
    typed = {"id": ["a"], "x.gt": [1], "yes": [True], "some": [["p", "q"]], "text": ["True"]}
    counts(own.put_file("application/vnd.apache.parquet", parquet(**typed), tags=["yes", "some", "text"]))
    assert own.query("a")["tags"] == {
        "collection": own.name,
        "yes": "true",
        "some": '["p","q"]',
        "text": "True",
    }


def test_a_table_of_thresholds(own: Own) -> None:
    text = (
        "id,x.gt,x.lte,kind,kind.not_in,where,on,note,enabled\r\n"
        "hot,30,,,,,,first,\r\n"
        "mild,10,20.5,tug,,,enter leave,,\r\n"
        "not,,,,tug|yacht,,,,false\r\n"
        'any,,,,,"x > 1 or y > 1",,,\r\n'
    )
    answer = own.put_file("text/csv", b"\xef\xbb\xbf" + text.encode(), tags="note")
    assert counts(answer) == (4, 0, 0, 0, 4)
    assert {id: own.query(id)["canonical"] for id in own.ids()} == {
        "hot": "x > 30",
        "mild": "kind == 'tug' and 10 < x <= 20.5",
        "not": "kind not in ('tug', 'yacht')",
        "any": "x > 1 or y > 1",
    }
    assert own.query("mild")["on"] == ["enter", "leave"]
    assert own.query("not")["state"] == "disabled"
    assert own.query("hot")["tags"] == {"collection": own.name, "note": "first"}
    circles = own.put_file("text/csv; charset=utf-8", b"id,x,y,radius_m\nc,1,2,5e3\nd,,,\n")
    assert [(one["place"], one["reason"]) for one in circles.json()["failures"]] == [
        ("line 3", "missing_field")
    ]
    half = own.put_file("text/csv; charset=utf-8", b"id,x,y,radius_m\nc,1,2,\n")
    (failure,) = half.json()["failures"]
    assert (half.status_code, failure["field"], failure["reason"]) == (422, "radius_m", "missing_field")
    assert failure["detail"] == "is empty; x, y, radius_m are a circle together, so fill all of them or none"
    circles = own.put_file("text/csv; charset=utf-8", b"id,x,y,radius_m\nc,1,2,5e3\n")
    assert counts(circles) == (1, 0, 0, 4, 1)
    assert own.query("c")["canonical"] == "(x, y) in circle(1, 2, 5000)"


def test_a_table_is_refused_by_column_and_line(own: Own) -> None:
    def failures(body: bytes) -> list[tuple[str, str, str]]:
        problem = own.put_file("text/csv", body).json()
        return [(one["place"], one["field"], one["reason"]) for one in problem["failures"]]

    def refused(body: bytes) -> tuple[str, str]:
        problem = own.put_file("text/csv", body).json()
        return problem["field"], problem["reason"]

    assert refused(b"") == ("id", "missing_field")
    assert refused(b"id,speed.gt\n") == ("speed.gt", "unknown_attribute")
    assert refused(b"id,x.gt,x.gt\n") == ("", "bad_value")
    assert refused(b"id,x.gt\n\xff,1\n") == ("", "syntax")
    assert failures(b"id,x.gt,where\na,1\nb,abc,\nc,1,x > 2\n,3,\nd,1e999,\ne,,\n") == [
        ("line 2", "", "syntax"),
        ("line 3", "x.gt", "not_a_number"),
        ("line 4", "where", "bad_value"),
        ("line 5", "id", "missing_field"),
        ("line 6", "x.gt", "not_finite"),
        ("line 7", "where", "missing_field"),
    ]


@pytest.mark.parametrize(
    ("rows", "place"),
    [
        ('a,"tug\nb,yacht\nc,tug\n', "line 2"),
        ('a,"tug"s\nb,yacht\n', "line 2"),
        ('a,tug\n"b,yacht\nc,tug\n', "line 3"),
        ('a,"tug\n\n"\nb,"yacht\n', "line 5"),
        (f'a,tug\nb,"{"yacht" * 40_000}\n', "line 3"),
    ],
)
def test_a_quote_that_is_not_closed_refuses_the_file(own: Own, rows: str, place: str) -> None:
    assert counts(own.put_file("text/csv", b"id,kind\na,x\nb,y\nc,z\n")) == (3, 0, 0, 0, 3)
    refused = own.put_file("text/csv", f"id,kind\n{rows}".encode())
    (failure,) = refused.json()["failures"]
    assert (refused.status_code, failure["place"], failure["reason"]) == (422, place, "syntax")
    assert failure["detail"].endswith(
        '; a cell that begins with a quote ends with one, and a quote inside is written twice ("")'
    )
    assert own.ids() == ["a", "b", "c"]


def test_a_quote_that_is_not_closed_in_the_header_refuses_the_file(own: Own) -> None:
    refused = own.put_file("text/csv", b'id,"kind\na,x\n')
    assert (refused.status_code, refused.json()["reason"]) == (422, "syntax")
    assert refused.json()["detail"].startswith("line 1: ")


def test_a_cell_in_quotes_may_go_over_several_lines(own: Own) -> None:
    text = b'id,kind,x.gt\na,"tug\r\n""x"" ",\nb,"y",1\nc,"\n",x\n'
    (failure,) = own.put_file("text/csv", text).json()["failures"]
    assert (failure["place"], failure["id"], failure["field"]) == ("line 5", "c", "x.gt")
    assert counts(own.put_file("text/csv", text.replace(b",x\n", b",2\n"))) == (3, 0, 0, 0, 3)
    assert own.query("a")["where"] == {"any": [{"kind": {"eq": 'tug\r\n"x" '}}]}


def test_a_cell_that_is_no_number_is_told_with_its_column(own: Own) -> None:
    def failures(head: str, *rows: str) -> list[tuple[str, str]]:
        text = "".join(f"{line}\n" for line in (head, *rows)).encode()
        problem = own.put_file("text/csv", text).json()
        assert [one["place"] for one in problem["failures"]] == [f"line {i + 2}" for i in range(len(rows))]
        for one in problem["failures"]:
            if one["reason"] == "not_a_number":
                assert one["detail"].endswith("write it like 5, -0.5 or 1e3, or leave the cell empty")
        return [(one["field"], one["reason"]) for one in problem["failures"]]

    bad = "not_a_number"
    found = failures("id,x.gt", "a,NaN", "b,-Infinity", f"c,{'9' * 400}", "d,.5", "e,+5", "f,05", "g,true")
    assert found == [
        *[("x.gt", "not_finite")] * 2,
        ("x.gt", "inexact"),
        *[("x.gt", bad)] * 4,
    ]
    assert failures("id,x.in", "a,1|NaN", "b,1||2") == [("x.in", "not_finite"), ("x.in", bad)]
    assert failures("id,x,y,radius_m", "a,0,0,1e999", "b,0,,5", "c,0,north,5") == [
        ("radius_m", "not_finite"),
        ("y", "missing_field"),
        ("y", bad),
    ]


def test_a_number_that_is_none_is_told_with_its_feature(own: Own) -> None:
    def circle(id: str, x: float, radius_m: float) -> dict[str, Any]:
        at = {"type": "Point", "coordinates": [x, 1]}
        return feature(id, at, note='NaN " -Infinity', radius_m=radius_m)

    none, endless = float("nan"), float("-inf")  # Python writes them, as NaN and -Infinity
    wrong = own.put(circle("a", none, 5), circle("b", 1, 5), circle("c", 1, endless)).json()
    assert [(one["place"], one["id"], one["field"], one["reason"]) for one in wrong["failures"]] == [
        ("features[0]", "a", "geometry.coordinates[0]", "not_finite"),
        ("features[2]", "c", "properties.radius_m", "not_finite"),
    ]
    assert wrong["failures"][0]["detail"].startswith("NaN is no finite number")
    assert counts(own.put(circle("b", 1, 5), tags="note")) == (1, 0, 0, 0, 1)
    assert own.query("b")["tags"]["note"] == 'NaN " -Infinity'
    around = {"type": "FeatureCollection", "crs": {"x": none}, "features": [circle("b", 1, 5)]}
    elsewhere = own.put_file(GEOJSON, json.dumps(around).encode()).json()
    assert (elsewhere["field"], elsewhere["reason"]) == ("crs.x", "not_finite")


def test_the_same_table_as_parquet(own: Own) -> None:
    table = pyarrow.table(
        {
            "id": ["a", "b"],
            "x.gt": [1.5, None],
            "kind.in": pyarrow.array([None, ["tug"]]),
            "enabled": [True, False],
        }
    )
    out = io.BytesIO()
    pyarrow.parquet.write_table(table, out)
    assert counts(own.put_file("application/vnd.apache.parquet", out.getvalue())) == (2, 0, 0, 0, 2)
    assert [own.query(id)["canonical"] for id in "ab"] == ["x > 1.5", "kind == 'tug'"]
    assert own.query("b")["state"] == "disabled"
    assert own.client.get(own.url).json()["kind"] == "parquet"
    broken = own.put_file("application/vnd.apache.parquet", out.getvalue()[:-9])
    assert (broken.status_code, broken.json()["reason"]) == (422, "syntax")


def test_if_match_holds_for_the_collection_and_its_members(own: Own) -> None:
    assert own.put(feature("a", square(0)), headers={"If-Match": "*"}).status_code == 412
    etag = own.put(feature("a", square(0)), headers={"If-None-Match": "*"}).headers["etag"]
    assert own.put(feature("a", square(1)), headers={"If-None-Match": "*"}).status_code == 412
    changed = own.put(feature("a", square(1)), headers={"If-Match": etag})
    assert changed.status_code == 200
    assert own.put(feature("a", square(2)), headers={"If-Match": etag}).status_code == 412
    own.client.patch(f"/v1/queries/{own.name}:a", json={"enabled": False}).raise_for_status()
    assert own.put(feature("a", square(2)), headers={"If-Match": changed.headers["etag"]}).status_code == 412
    now = own.client.get(own.url).headers["etag"]
    assert own.client.delete(own.url, headers={"If-Match": changed.headers["etag"]}).status_code == 412
    assert own.client.delete(own.url, headers={"If-Match": now}).status_code == 204


def test_a_version_that_the_client_has_is_not_sent_again(own: Own) -> None:
    old = own.put(feature("a", square(0))).headers["etag"]
    tag = own.put(feature("a", square(1))).headers["etag"]
    same = own.client.get(own.url, headers={"If-None-Match": tag})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    sent = own.client.get(own.url, headers={"If-None-Match": old})
    assert (sent.status_code, sent.json()["etag"]) == (200, tag.strip('"'))


def test_members_changed_alone_are_put_right(own: Own) -> None:
    features = [feature(id, square(i)) for i, id in enumerate("abc")]
    own.put(*features)
    own.client.delete(f"/v1/queries/{own.name}:a").raise_for_status()
    own.client.patch(f"/v1/queries/{own.name}:b", json={"enabled": False}).raise_for_status()
    assert own.client.get(own.url).json()["members"] == 2
    assert counts(own.put(*features)) == (1, 1, 1, 0, 3)


def test_a_query_of_its_own_is_not_taken_over(own: Own) -> None:
    body = {"source": own.source.name, "where": "x > 0"}
    own.client.put(f"/v1/queries/{own.name}:a", json=body).raise_for_status()
    refused = own.put(feature("a", square(0)))
    assert (refused.status_code, refused.json()["reason"]) == (409, "exists")
    assert counts(own.put(feature("b", square(0)))) == (1, 0, 0, 0, 1)
    assert own.client.delete(own.url).status_code == 204
    assert own.query("a")["canonical"] == "x > 0"


def test_a_deleted_collection_is_gone_with_its_members(own: Own) -> None:
    own.put(feature("a", square(0)), feature("b", square(9)))
    own.source.send({"stream_id": "v", "x": 0.5, "y": 0.5})
    listed = own.client.get("/v1/collections").json()["collections"]
    assert own.name in [one["name"] for one in listed]
    gone = own.client.delete(own.url)
    assert gone.status_code == 204
    assert "command" in json.loads(gone.headers["active-from"])
    assert own.borders()[-1] == ("deleted", ["a"], [])
    assert own.client.get(own.url).status_code == 404
    assert own.client.delete(own.url).status_code == 404
    assert own.ids() == []
    assert own.put(feature("a", square(0))).status_code == 201


def test_a_collection_stays_on_its_source(own: Own, client: httpx.Client) -> None:
    own.put(feature("a", square(0)))
    other = OwnSource(client)
    refused = own.put(feature("a", square(0)), source=other.name)
    assert (refused.status_code, refused.json()["field"]) == (422, "source")


def test_a_member_of_another_source_is_not_taken_over(own: Own, client: httpx.Client) -> None:
    other = OwnSource(client)
    id = f"{own.name}:a"
    body = {"source": other.name, "where": {"any": [{}]}, "tags": {"collection": own.name}}
    client.put(f"/v1/queries/{id}", json=body).raise_for_status()
    refused = own.put(feature("a", square(0)))
    assert (refused.status_code, refused.json()["reason"]) == (409, "exists")
    assert client.get(f"/v1/queries/{id}").json()["source"] == other.name
    assert own.put(feature("b", square(0))).json()["deleted"] == 1


def test_collections_are_there_after_a_restart(tmp_path: Path) -> None:
    features = [feature(i, square(i)) for i in range(3)]
    with running(tmp_path) as service:
        own = Own(OwnSource(service.client))
        etag = own.put(*features).headers["etag"]
        own.put_file(GEOJSON, b'{"type": "FeatureCollection", "features": []}')
        etag = own.put(*features).headers["etag"]
        name = own.source.name
    with running(tmp_path) as service:
        view = service.client.get(own.url)
        assert view.headers["etag"] == etag
        assert (view.json()["members"], view.json()["source"]) == (3, name)
        own.client = service.client
        assert counts(own.put(*features)) == (0, 0, 3, 0, 3)


def test_an_export_is_importable_as_it_is(own: Own) -> None:
    own.put(
        feature("a", polygon(TRIANGLE)), feature("c", {"type": "Point", "coordinates": [0, 1]}, radius_m=5)
    )
    exported = own.client.get("/v1/queries:export", params={"source": own.source.name}).content
    canonical = [own.query(id)["canonical"] for id in "ac"]
    own.client.delete(own.url).raise_for_status()
    own.client.post("/v1/queries:bulk", content=exported).raise_for_status()
    assert [own.query(id)["canonical"] for id in "ac"] == canonical
    assert own.client.get("/v1/queries:export", params={"source": own.source.name}).content == exported


def test_a_limit_on_queries_holds_for_members(tmp_path: Path) -> None:
    with running(tmp_path, max_queries=2, max_bulk_bytes=5_000, max_message_bytes=700) as service:
        own = Own(OwnSource(service.client))
        refused = own.put(*(feature(i, square(i)) for i in range(3)))
        assert (refused.status_code, refused.json()["reason"]) == (429, "quota")
        assert own.put(*(feature(i, square(i)) for i in range(2))).status_code == 201
        assert counts(own.put(*(feature(i, square(i)) for i in range(1, 2)))) == (0, 0, 1, 1, 1)
        assert counts(own.put(*(feature(i, square(i)) for i in range(5, 7)))) == (2, 0, 0, 1, 2)
        large = feature("a", polygon([[[0, 0], *([9, i / 100] for i in range(60)), [0, 0]]]))
        refused = own.put(large)
        assert (refused.status_code, refused.json()["reason"]) == (413, "too_large")
        assert own.put_file(GEOJSON, b" " * 6_000).status_code == 413


def test_the_history_tells_of_a_collection_and_of_its_members(own: Own) -> None:
    own.put(feature("a", square(0)), headers={"X-Actor": "ana"})
    own.put(feature("a", square(0)), feature("b", square(2)), headers={"X-Actor": "bob"})
    own.client.delete(own.url, headers={"X-Actor": "cleo"}).raise_for_status()

    def entries(**asked: str) -> list[tuple[Any, ...]]:
        found = history(own.client, **asked)
        return [(entry["what"], entry["by"], entry["changed"], entry["body"]) for entry in found]

    body = {"source": own.source.name, "kind": "geojson"}
    assert entries(collection=own.name) == [
        ("written", "ana", None, {**body, "members": 1}),
        ("changed", "bob", ["members"], {**body, "members": 2}),
        ("deleted", "cleo", None, None),
    ]
    member = [entry[:2] for entry in entries(query=f"{own.name}:b")]
    assert member == [("written", "bob"), ("deleted", "cleo")]


def test_what_has_expired_is_left_out_of_the_file(own: Own) -> None:
    text = b"id,x.gt,expires_at\na,1,2001-01-01T00:00:00Z\nb,2,2999-01-01T00:00:00Z\nc,3,\n"
    first = own.put_file("text/csv", text)
    assert (counts(first), first.json()["expired"]) == ((2, 0, 0, 0, 2), 1)
    again = own.put_file("text/csv", text)
    assert (counts(again), again.json()["expired"]) == ((0, 0, 2, 0, 2), 1)
    later = own.put_file("text/csv", text.replace(b"2999", b"2002"))
    assert (counts(later), later.json()["expired"]) == ((0, 0, 1, 1, 1), 2)
    assert own.ids() == ["c"]
    refused = own.put_file("text/csv", b"id,x.gt,expires_at,once\na,1,2001-01-01T00:00:00Z,maybe\n")
    assert refused.json()["reason"] == "bad_value"


def test_aggregates_and_milliseconds_in_tables_and_parameters(own: Own) -> None:
    text = (
        b"id,x.gt,aggregates,for,cooldown,expires_at\n"
        b'a,1,"{""every"": ""5s"", ""of"": [""x""]}",5000,1m,\n'
        b"b,2,,,,32503680000000\n"
    )
    default = '{"of": ["y"]}'
    assert counts(own.put_file("text/csv", text, aggregates=default, cooldown="7000")) == (2, 0, 0, 0, 2)
    a, b = own.query("a"), own.query("b")
    assert (a["aggregates"], a["for"], a["cooldown"]) == ({"every": 5000, "of": ["x"]}, 5000, 60_000)
    assert (b["aggregates"], b["for"], b["cooldown"]) == ({"every": 1000, "of": ["y"]}, None, 7000)
    assert b["expires_at"] == 32_503_680_000_000
    wrong = own.put_file("text/csv", b"id,x.gt,aggregates\na,1,every second\n").json()["failures"]
    assert [(one["field"], one["reason"]) for one in wrong] == [("aggregates", "syntax")]
    refused = own.put(feature("a", square(0)), aggregates="x").json()
    assert (refused["field"], refused["reason"]) == ("aggregates", "syntax")
    counts(own.put(feature("a", square(0)), aggregates=default, expires_at="32503680000001"))
    assert own.query("a")["aggregates"] == {"every": 1000, "of": ["y"]}
    assert own.query("a")["expires_at"] == 32_503_680_000_001


def parquet(**columns: Any) -> bytes:
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), out)
    return out.getvalue()


def test_typed_columns_of_parquet(own: Own) -> None:
    media = "application/vnd.apache.parquet"
    at = datetime(2999, 1, 1, tzinfo=UTC)
    typed = {
        "id": ["a"],
        "x.gt": [1],
        "on": [["enter", "leave"]],
        "select": [["y"]],
        "for": [5000.0],
        "cooldown": [250],
        "expires_at": pyarrow.array([at], pyarrow.timestamp("ms", "UTC")),
        "aggregates": [{"every": "2s", "of": ["x"]}],
        "seen": pyarrow.array([at], pyarrow.timestamp("ms", "UTC")),
    }
    assert counts(own.put_file(media, parquet(**typed), tags="seen")) == (1, 0, 0, 0, 1)
    query = own.query("a")
    assert (query["on"], query["select"]) == (["enter", "leave"], ["y"])
    assert (query["for"], query["cooldown"], query["expires_at"]) == (5000, 250, int(at.timestamp()) * 1000)
    assert query["aggregates"] == {"every": 2000, "of": ["x"]}
    assert query["tags"]["seen"] == "2999-01-01T00:00:00+00:00"

    def failure(**column: Any) -> tuple[str, str]:
        answer = own.put_file(media, parquet(**{"id": ["a"], "y.gt": [1.0], **column}))
        (one,) = answer.json()["failures"]
        return one["field"], one["reason"]

    assert failure(**{"x.gt": [Decimal("1.5")]}) == ("x.gt", "bad_value")
    assert failure(**{"x.gt": [b"1.5"]}) == ("x.gt", "bad_value")
    assert failure(**{"kind.in": [[b"tug"]]}) == ("kind.in", "bad_value")
    assert failure(**{"for": [2.5]}) == ("for", "bad_value")
    assert failure(**{"x.gt": [True]}) == ("x.gt", "not_a_number")
    assert failure(**{"x.gt": [[1.0]]}) == ("x.gt", "not_a_number")
    assert failure(**{"x.in": [1.0]}) == ("x.in", "syntax")
    assert failure(once=[[True]]) == ("once", "bad_value")
    assert failure(expires_at=[at.replace(tzinfo=None)]) == ("expires_at", "bad_value")
    nanoseconds = pyarrow.array([1], pyarrow.timestamp("ns", "UTC"))
    assert failure(expires_at=nanoseconds)[1] in ("syntax", "bad_value")


def test_puts_at_the_same_time_come_one_after_another(own: Own) -> None:
    def put(size: int) -> list[httpx.Response]:
        return [own.put(*(feature(i, square(i, size + k)) for i in range(60))) for k in range(4)]

    with ThreadPoolExecutor(8) as pool:
        answers = [answer for answered in pool.map(put, range(1, 80, 10)) for answer in answered]
    assert {answer.status_code for answer in answers} == {200, 201}
    assert [answer.status_code for answer in answers].count(201) == 1
    assert own.client.get(own.url).json()["members"] == 60


def test_who_is_disturbed_each_time_is_asked_to_come_again(own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    own.put(feature("a", square(0)))
    times = 0

    def disturbed(kind: str, raw: bytes, reading: Reading) -> Iterator[Member]:
        nonlocal times
        times += 1
        url = f"/v1/queries/{own.name}:a"
        own.client.patch(url, json={"tags": {"n": str(times), "collection": own.name}}).raise_for_status()
        return members(kind, raw, reading)

    monkeypatch.setattr(collections, "members", disturbed)
    answer = own.put(feature("a", square(1)))
    assert (answer.status_code, answer.json()["reason"]) == (503, "unavailable")
    assert times > 1
    assert own.client.delete(own.url, headers={"If-Match": "*"}).status_code == 204


def test_a_bbox_whose_west_is_beyond_its_east_goes_across_the_antimeridian(own: Own) -> None:
    def box(*bbox: Any) -> httpx.Response:
        return own.put({"type": "Feature", "id": "a", "properties": None, "geometry": None, "bbox": bbox})

    assert box(179, 0, -179, 1).status_code == 201
    own.source.send({"stream_id": "v", "x": 179.5, "y": 1}, {"stream_id": "w", "x": -180, "y": 0})
    assert own.client.get(f"/v1/queries/{own.name}:a/streams").json()["streams"] == ["v", "w"]
    own.source.send({"stream_id": "v", "x": 0, "y": 1}, {"stream_id": "w", "x": -178.9, "y": 0})
    assert own.client.get(f"/v1/queries/{own.name}:a/streams").json()["streams"] == []
    assert box(179, 0, 180, 1).status_code == 200
    for wrong in ((5, 0, -190, 1), (0, 1, 1, 0), ("179", 0, -179, 1)):
        assert box(*wrong).status_code == 422


def test_a_byte_order_mark_is_passed_over_and_a_key_twice_is_not(own: Own) -> None:
    one = json.dumps(feature("a", square(0)))
    whole = f'{{"type": "FeatureCollection", "features": [{one}]}}'
    assert counts(own.put_file(GEOJSON, b"\xef\xbb\xbf" + whole.encode())) == (1, 0, 0, 0, 1)
    for twice in (
        f'{{"type": "FeatureCollection", "features": [{one}], "features": [{one}, {one}]}}',
        f'{{"type": "FeatureCollection", "features": [{one}], "features": []}}',
        f'{{"type": "FeatureCollection", "type": "FeatureCollection", "features": [{one}]}}',
    ):
        refused = own.put_file(GEOJSON, twice.encode())
        assert (refused.status_code, refused.json()["reason"]) == (422, "syntax"), twice


def test_a_coordinate_in_quotes_is_told_with_its_place(own: Own) -> None:
    (told,) = own.put(feature("a", polygon([[[0, 0], [4, "4"], [4, 0], [0, 0]]]))).json()["failures"]
    assert told["reason"] == "not_a_number"
    assert told["detail"].startswith('position 1 of ring 0: the text "4" is not a number')


def test_id_and_tag_make_a_member_whoever_wrote_them(own: Own) -> None:
    def write(id: str, tag: str) -> None:
        body = {"source": own.source.name, "where": "x > 0", "tags": {"collection": tag}}
        own.client.put(f"/v1/queries/{id}", json=body).raise_for_status()

    write(f"{own.name}:mine", own.name)
    write(f"{own.name}:other", f"{own.name}-2")
    write(f"{own.name}-mine", own.name)
    assert counts(own.put(feature("a", square(0)))) == (1, 0, 0, 1, 1)
    assert own.client.get(f"/v1/queries/{own.name}:mine").status_code == 404
    assert own.client.get(f"/v1/queries/{own.name}:other").status_code == 200
    assert own.client.get(f"/v1/queries/{own.name}-mine").status_code == 200


def _query(id: str, source: str) -> dict[str, Any]:
    body = {"id": id, "source": source, "where": "y > 0", "tags": {"collection": id.partition(":")[0]}}
    return {"op": "query", "id": id, "query": body}


def _collection(name: str, source: str) -> dict[str, Any]:
    return {"op": "collection", "name": name, "source": source, "kind": "csv", "members": 1}


def test_a_collection_of_a_source_that_cannot_be_read_can_be_deleted(tmp_path: Path) -> None:
    bad = {"op": "source", "name": "bad", "source": {"attributes": {"y": "nubmer"}}}
    write_commands(tmp_path, bad, _query("c:a", "bad"), _collection("c", "bad"))
    with running(tmp_path) as service:
        client = service.client
        assert client.get("/v1/queries/c:a").json()["state"] == "quarantined"
        put = client.put(
            "/v1/collections/c?source=bad", content=b"id,y.gt\na,0\n", headers={"Content-Type": "text/csv"}
        )
        assert (put.status_code, put.json()["reason"]) == (422, "unknown_source")
        assert client.delete("/v1/collections/c").status_code == 204
        assert client.get("/v1/collections/c").status_code == 404
        assert client.get("/v1/queries/c:a").status_code == 404


def test_a_quarantined_member_that_is_put_anew_is_replaced(tmp_path: Path) -> None:
    wide, narrow = ({"attributes": dict.fromkeys(names, "number")} for names in ("xy", "x"))
    write_commands(
        tmp_path,
        {"op": "source", "name": "s", "source": wide},
        _query("c:a", "s"),
        _collection("c", "s"),
        {"op": "source", "name": "s", "source": narrow},
    )
    with running(tmp_path) as service:
        put = service.client.put(
            "/v1/collections/c?source=s", content=b"id,x.gt\na,0\nb,0\n", headers={"Content-Type": "text/csv"}
        )
        assert counts(put) == (1, 1, 0, 0, 2)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("expires_at", pyarrow.array([2**60], pyarrow.timestamp("ms", "UTC"))),
        ("expires_at", pyarrow.array([1], pyarrow.timestamp("ns", "UTC"))),
        ("expires_at", pyarrow.array([0], pyarrow.timestamp("ms", "Mars/Olympus"))),
        ("seen", pyarrow.array([2**31 - 1], pyarrow.date32())),
        ("seen", pyarrow.array([2**62], pyarrow.duration("s"))),
    ],
    ids=str,
)
def test_a_time_that_python_has_not_is_told_with_its_column_and_row(
    own: Own, column: str, values: pyarrow.Array
) -> None:
    good = pyarrow.array([0], values.type)
    if not (column == "expires_at" and "Mars" in str(values.type)):
        values = pyarrow.concat_arrays([good, values])
    count = len(values)
    file = parquet(**{"id": [f"m{i}" for i in range(count)], "y.gt": [1.0] * count, column: values})
    refused = own.put_file("application/vnd.apache.parquet", file, tags="seen")
    assert refused.status_code == 422, refused.text
    failure = refused.json()["failures"][-1]
    assert (failure["place"], failure["field"], failure["reason"]) == (f"row {count}", column, "bad_value")
    assert str(values.type) in failure["detail"]


def test_tags_of_dates_are_texts_and_those_of_no_number_are_refused(own: Own) -> None:
    media = "application/vnd.apache.parquet"
    dates = pyarrow.array([0], pyarrow.date32())
    assert own.put_file(media, parquet(id=["a"], **{"y.gt": [1.0], "seen": dates}), tags="seen").is_success
    member = own.client.get(f"/v1/queries/{own.name}:a").json()
    assert member["tags"]["seen"] == "1970-01-01"
    refused = own.put_file(media, parquet(id=["a"], **{"y.gt": [1.0], "seen": [float("nan")]}), tags="seen")
    (failure,) = refused.json()["failures"]
    assert (failure["field"], failure["reason"]) == ("seen", "not_finite")


def test_a_cell_may_be_long(own: Own) -> None:
    long = "x" * 200_000
    assert own.put_file("text/csv", f'id,y.gt,note\na,1,"{long}"\n'.encode(), tags="note").is_success
    assert own.client.get(f"/v1/queries/{own.name}:a").json()["tags"]["note"] == long


# ---- files that are small and come to much


PARQUET = "application/vnd.apache.parquet"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Own]:
    """On a service that takes files of ten members, of 2,000 bytes each, that unpack to 100,000 bytes."""
    limits = {"max_queries_tenant": 10, "max_bulk_bytes": 100_000, "max_message_bytes": 2_000}
    with running(tmp_path_factory.mktemp("small"), **limits) as service:
        yield Own(OwnSource(service.client))


def packed(**columns: Any) -> bytes:
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), out, compression="zstd")
    assert len(out.getvalue()) < 50_000
    return out.getvalue()


@pytest.mark.parametrize("name", ["bent-1.parquet", "bent-2.parquet"])
def test_a_parquet_file_that_ends_its_reader_ends_nothing_else(own: Own, name: str) -> None:
    file = Path(__file__).parents[1] / "data" / name
    refused = own.put_file(PARQUET, file.read_bytes())
    refused_as(refused, 422, "syntax", "cannot be read as Parquet", "write the file anew")
    assert own.client.get("/healthz").is_success


def ids(count: int) -> list[str]:
    return [f"i{i}" for i in range(count)]


def refused_as(answer: httpx.Response, status: int, reason: str, *words: str) -> None:
    problem = answer.json()
    assert (answer.status_code, problem["reason"]) == (status, reason), problem
    assert all(word in problem["detail"] for word in words), problem


def test_a_file_of_more_members_than_there_may_be_queries_is_refused_as_it_is_read(small: Own) -> None:
    many = {
        PARQUET: packed(id=pyarrow.repeat("a", 1_000_000), **{"x.gt": pyarrow.repeat(1.0, 1_000_000)}),
        "text/csv": b"id,x.gt\n" + b"a\n" * 40_000,
        GEOJSON: b'{"type":"FeatureCollection","features":[' + b"1, " * 30_000 + b"1]}",
    }
    for media, file in many.items():
        refused = small.put_file(media, file)
        refused_as(refused, 429, "quota", "10 queries", "max_queries_tenant", "leave some out")
        assert "failures" not in refused.json()


@pytest.mark.parametrize(
    "columns",
    [
        {"note": pyarrow.repeat("y" * 20_000, 10)},
        {"note": pyarrow.array([["y" * 20_000] * 10] + [None] * 9)},
        {"note": pyarrow.repeat(pyarrow.scalar(b"y" * 20_000, pyarrow.binary(20_000)), 10)},
        {"note": pyarrow.repeat("y" * 120_000, 10).dictionary_encode()},
        {"x.in": pyarrow.array([[1.0] * 20_000] + [None] * 9)},
        {"aggregates": pyarrow.array([{"of": ["y" * 1_000] * 200}] + [None] * 9)},
    ],
    ids=[
        "texts",
        "texts in a list",
        "bytes of one width",
        "one long text",
        "numbers in a list",
        "in a struct",
    ],
)
def test_a_table_that_unpacks_to_more_than_it_may_be_is_refused(small: Own, columns: dict[str, Any]) -> None:
    refused = small.put_file(PARQUET, packed(id=ids(10), **{"y.gt": [1.0] * 10}, **columns), tags="note")
    refused_as(refused, 413, "too_large", "100000", "max_bulk_bytes", "several collections")
    assert refused.json()["field"] == ""


def test_many_columns_of_many_rows_count_as_what_they_unpack_to(tmp_path: Path) -> None:
    rows, tags = 3_000, [f"t{i}" for i in range(60)]
    with running(tmp_path, max_bulk_bytes=1_000_000) as service:
        own = Own(OwnSource(service.client))
        file = packed(id=ids(rows), **{"x.gt": [1.0] * rows}, **{tag: ["same"] * rows for tag in tags})
        refused_as(own.put_file(PARQUET, file, tags=tags), 413, "too_large", "max_bulk_bytes")
        few = packed(id=ids(rows), **{"x.gt": [1.0] * rows}, **{tag: ["same"] * rows for tag in tags[:20]})
        assert counts(own.put_file(PARQUET, few, tags=tags[:20])) == (rows, 0, 0, 0, rows)


def test_a_table_that_unpacks_to_what_it_may_be_is_taken(small: Own) -> None:
    file = packed(id=ids(10), **{"y.gt": [1.0] * 10}, note=pyarrow.repeat("y" * 1_500, 10))
    assert counts(small.put_file(PARQUET, file, tags="note")) == (10, 0, 0, 0, 10)
    assert small.put().is_success


@pytest.mark.parametrize("place", ["line 1", "line 2", "line 3"])
def test_a_row_of_csv_that_is_longer_than_a_query_is_refused(small: Own, place: str) -> None:
    lines = [b"id,y.gt,note", b"a,1,b", b'c,1,"two\nlines"']
    at = int(place.split()[1]) - 1
    lines[at] += b",ab" * 700 if at < 2 else b"\n" + b"d" * 2_500
    refused = small.put_file("text/csv", b"\n".join(lines), tags="note")
    refused_as(refused, 413, "too_large", "2000 bytes of max_message_bytes")


def test_what_is_beside_the_features_has_a_limit(small: Own) -> None:
    around = b'{"type":"FeatureCollection","features":[],"crs":[' + b"[]," * 1_000 + b"[]]}"
    refused_as(small.put_file(GEOJSON, around), 413, "too_large", "max_message_bytes")


def test_features_are_found_wherever_they_end(own: Own) -> None:
    texts = [json.dumps(feature(i, square(i), note=note)) for i, note in enumerate(['a"]},', "\\", "{[", ""])]
    for between in (",", " ,\n\t", "\r\n, "):
        body = f'{{ "features" : [ {between.join(texts)} ], "type": "FeatureCollection", "x": [1, [2]]}}'
        put = own.put_file(GEOJSON, body.encode(), tags="note")
        assert put.is_success and put.json()["members"] == 4, put.text
        assert own.query("0")["tags"]["note"] == 'a"]},'
        assert own.query("1")["tags"]["note"] == "\\"
    wrong = own.put_file(GEOJSON, b'{"type": "FeatureCollection", "features": [[1, 2], "a,b", 3, {}]}').json()
    assert [one["place"] for one in wrong["failures"]] == [f"features[{i}]" for i in range(4)]
    none = own.put_file(GEOJSON, b'{"type": "FeatureCollection", "features": {}}')
    refused_as(none, 422, "syntax", "array")


def test_quotes_that_are_never_closed_are_looked_at_once(own: Own) -> None:
    """Each might begin a text that goes on to the end; if all are followed, a body of 5 MB takes hours."""
    for body in (b'NaN"' + b'\\"' * 2_500_000, b"NaN" + b'"\\' * 2_500_000, b"NaN" + b"I" * 5_000_000):
        refused_as(own.put_file(GEOJSON, body), 422, "syntax", "GeoJSON")


@pytest.mark.parametrize("depth", [201, 500, 2_000, 1_000_000])
def test_a_file_that_is_nested_too_deep_is_refused(own: Own, depth: int) -> None:
    lists, objects = b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth
    for deep in (lists, objects, lists[:depth], b"[NaN," + lists + b"]"):
        for body in (deep, b'{"type":"FeatureCollection","features":[%s]}' % deep):
            refused_as(own.put_file(GEOJSON, body), 422, "syntax", "nested deeper than 200", "at byte")


def test_what_is_nested_deep_but_not_too_deep_is_read(own: Own) -> None:
    deep = "[" * 190 + "]" * 190
    texts = {"quoted": '[{"' * 200, "escaped": '\\"[' * 200}
    answer = own.put(feature("a", square(0), deep=json.loads(deep), **texts), tags=["deep", *texts])
    assert counts(answer) == (1, 0, 0, 0, 1)
    assert own.query("a")["tags"] == {"collection": own.name, "deep": deep, **texts}


def test_of_many_failures_the_first_are_told(own: Own) -> None:
    refused = own.put_file("text/csv", b"id,y.gt\n" + b"a,x\n" * 1_200).json()
    assert (refused["refused"], len(refused["failures"])) == (1_200, 1_000)
    assert refused["failures"][-1]["place"] == "line 1001"
