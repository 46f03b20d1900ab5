"""Metrics, alerts and dashboard: a real Prometheus, with the stack's settings, scrapes the real service."""

from __future__ import annotations

import math
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.api.harness import TIMEOUT_S, eventually
from tests.cli.conftest import serving
from tests.deploy.stack import ROOT, alerts, dashboard, panel_queries, prometheus

ALERTS_TEST = Path(__file__).with_name("alerts_test.yml")
FEED_S = 0.2


def tool(name: str) -> str:
    found = shutil.which(name)
    assert found, f"{name} is missing: install Debian's package prometheus"
    return found


def promtool(*arguments: object) -> None:
    done = subprocess.run(
        [tool("promtool"), *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service with something of everything that it counts, and more of it all the time."""
    with (
        serving(tmp_path_factory.mktemp("service")) as served,
        httpx.Client(base_url=served.url, timeout=TIMEOUT_S) as client,
    ):
        for source in ("ais", "buoys"):
            client.put(f"/v1/sources/{source}", json={"attributes": {"x": "number"}}).raise_for_status()
            for enabled in (True, False):
                query = {
                    "source": source,
                    "where": "x > 0",
                    "enabled": enabled,
                    "aggregates": {"every": "1s"},
                }
                client.put(f"/v1/queries/{source}-{enabled}", json=query).raise_for_status()
        assert client.put("/v1/queries/odd", json={"source": "ais", "where": "y > 0"}).status_code == 422
        enough = Event()
        feeder = Thread(target=_feed, args=(client, enough), name="feeder")
        feeder.start()
        yield client
        enough.set()
        feeder.join()


def _feed(client: httpx.Client, enough: Event) -> None:
    """In and out, too late, and no event at all."""
    ts = 0
    while not enough.wait(FEED_S):
        ts += 10
        events = [{"stream_id": "v", "ts": ts + step, "x": x} for step, x in enumerate((1, -1, 1, -1))]
        events += [{"stream_id": "v", "ts": ts - 5, "x": 1}, {"stream_id": "v", "ts": ts, "x": "far"}]
        for source in ("ais", "buoys"):
            client.post(f"/v1/events?source={source}&wait=true", json=events).raise_for_status()


@pytest.fixture(scope="module")
def server(service: httpx.Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Prometheus with the stack's own settings, but for the address of the service and the pace."""
    folder = tmp_path_factory.mktemp("prometheus")
    settings = prometheus()
    settings["global"] = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "1s"}
    target = f"{service.base_url.host}:{service.base_url.port}"
    settings["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
    shutil.copy(ROOT / "deploy/prometheus/alerts.yml", folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = "{}:{}".format(*free.getsockname())
    options = {
        "config.file": folder / "prometheus.yml",
        "storage.tsdb.path": folder / "series",
        "web.listen-address": address,
    }
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [tool("prometheus"), *(f"--{name}={value}" for name, value in options.items())],
            stdout=out,
            stderr=out,
            cwd=folder,
        )
    try:
        with httpx.Client(base_url=f"http://{address}", timeout=TIMEOUT_S) as client:
            eventually(lambda: _answers(client, process, log), "Prometheus is ready")
            yield client
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


def _answers(client: httpx.Client, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()[-2000:]
    try:
        return client.get("/-/ready").status_code == 200
    except httpx.ConnectError:
        return False


def samples(server: httpx.Client, promql: str) -> list[float]:
    """The values of an instant query; fails if it does not parse."""
    answer = server.get("/api/v1/query", params={"query": promql}).json()
    assert answer["status"] == "success", answer
    return [float(one["value"][1]) for one in answer["data"]["result"]]


@pytest.mark.parametrize(("title", "promql"), panel_queries())
def test_every_panel_has_something_to_show(server: httpx.Client, title: str, promql: str) -> None:
    def shown() -> bool:
        found = samples(server, promql)
        return bool(found) and not any(map(math.isnan, found))

    eventually(shown, f"{title}: samples of {promql}")


def test_events_are_conserved_at_every_scrape(server: httpx.Client) -> None:
    [promql] = [promql for title, promql in panel_queries() if title == "Unaccounted events"]
    eventually(lambda: samples(server, "count_over_time(up[1m]) > 10"), "ten scrapes")
    assert samples(server, "sum(rangewatch_events_total)")[0] > 0
    assert samples(server, f"count_over_time(({promql} == 0)[1m:500ms])")
    assert samples(server, f"count_over_time(({promql} != 0)[1m:500ms])") == []


def test_the_rules_are_evaluated(server: httpx.Client) -> None:
    def states() -> dict[str, tuple[str, str]] | None:
        [group] = server.get("/api/v1/rules").json()["data"]["groups"]
        found = {rule["name"]: (rule["health"], rule["state"]) for rule in group["rules"]}
        return None if ("unknown", "inactive") in found.values() else found

    found: dict[str, Any] = eventually(states, "all rules evaluated")
    # A sixth of the events is refused, so that alert is on its way; no other is.
    assert found.pop("RangewatchRefusals") in {("ok", "pending"), ("ok", "inactive")}
    assert found == {rule["alert"]: ("ok", "inactive") for rule in alerts() if rule["alert"] in found}
    assert len(found) == len(alerts()) - 1


def test_every_metric_has_a_panel_and_every_name_is_a_metric(service: httpx.Client) -> None:
    def exposed() -> list[Any] | None:
        families = list(text_string_to_metric_families(service.get("/metrics").text))
        return families if all(family.samples for family in families) else None

    families = eventually(exposed, "a sample of every metric")
    names = {sample.name for family in families for sample in family.samples}
    shown = {name for _, promql in panel_queries() for name in metrics_in(promql)}
    asked = {name for rule in alerts() for name in metrics_in(rule["expr"])}
    asked |= set(metrics_in(dashboard()["templating"]["list"][0]["query"]["query"]))
    assert shown | asked <= names
    suffix = re.compile(r"_(total|bucket|sum|count|info)$")
    ours = {suffix.sub("", family.name) for family in families if family.name.startswith("rangewatch_")}
    unshown = ours - {suffix.sub("", name) for name in shown}
    assert {name for name in unshown if not name.endswith("_created")} == set()


def metrics_in(promql: str) -> list[str]:
    """The names of our metrics in an expression; ``a_(b|c)_d`` of a pattern are two."""
    pattern = re.compile(r"(rangewatch_\w*)\((\w+)\|(\w+)\)(\w*)")
    return re.findall(r"rangewatch_\w+", pattern.sub(r"\g<1>\g<2>\g<4> \g<1>\g<3>\g<4>", promql))


def test_the_settings_are_valid() -> None:
    promtool("check", "config", ROOT / "deploy/prometheus/prometheus.yml")


def test_alerts_fire_when_they_should_and_only_then() -> None:
    promtool("test", "rules", ALERTS_TEST)


def test_every_alert_is_tried_both_ways() -> None:
    tried: dict[str, set[bool]] = {}
    for case in yaml.safe_load(ALERTS_TEST.read_text())["tests"]:
        for one in case["alert_rule_test"]:
            tried.setdefault(one["alertname"], set()).add(bool(one.get("exp_alerts")))
    assert tried == {rule["alert"]: {True, False} for rule in alerts()}
