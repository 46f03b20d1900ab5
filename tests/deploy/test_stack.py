"""Dockerfile and compose file against the code and against each other: nothing is named that is not there."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.__main__ import parser
from service.api.access import is_loopback
from service.api.health import router
from service.cli import health
from service.settings import PREFIX, Settings
from spark_connector.__main__ import parser as spark_parser
from tests.deploy.stack import ROOT, Instruction, compose, dashboard, dockerfile, prometheus

IMAGES = ("service", "spark")

SERVICES = compose()["services"]


def instructions(stage: str, name: str) -> list[Instruction]:
    return [one for one in dockerfile() if one.stage == stage and one.name == name]


def environment(stage: str) -> dict[str, str]:
    pairs = (word.partition("=")[::2] for one in instructions(stage, "ENV") for word in one.words)
    return dict(pairs)


def copied() -> list[str]:
    """The paths of the project that the Dockerfile takes into the build."""
    own = (one for one in dockerfile() if one.name == "COPY" and not one.flags)
    return [path for one in own for path in one.words[:-1]]


def mounts(service: dict[str, Any]) -> dict[str, str]:
    """{where in the container: what}, of a service."""
    pairs = (volume.split(":") for volume in service.get("volumes", []))
    return {inside: outside for outside, inside, *_ in pairs}


def advertised() -> dict[str, str]:
    """{listener: address} of the broker."""
    listeners = SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"].split(",")
    return dict(listener.split("://") for listener in listeners)


def test_every_copied_path_exists_and_gets_past_the_ignore_file() -> None:
    assert copied()
    for path in copied():
        assert (ROOT / path).exists(), path
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == set(copied())


def test_the_packages_of_the_wheel_are_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) <= set(copied())
    extras = {
        extra
        for one in instructions("build", "RUN")
        for extra in re.findall(r"rangewatch\[(\w+)\]", one.rest)
    }
    assert extras == {"spark"}
    assert extras <= set(project["project"]["optional-dependencies"])
    [scripts] = project["project"]["scripts"]
    assert [scripts] == instructions("service", "ENTRYPOINT")[0].words


def test_packages_are_installed_by_hash_and_nowhere_else_from_an_index() -> None:
    installs = [
        command
        for one in dockerfile()
        if one.name == "RUN"
        for command in re.split(r"&&|;", one.rest)
        if re.search(r"\bpip (install|wheel|download)", command)
    ]
    assert len(installs) == 5
    for command in installs:
        assert "--require-hashes" in command or "--no-index" in command, command


@pytest.mark.parametrize("stage", IMAGES)
def test_images_do_not_run_as_root(stage: str) -> None:
    own = [one for one in dockerfile() if one.stage == stage]
    [user] = (place for place, one in enumerate(own) if one.name == "USER")
    assert own[user].words == ["rangewatch"]
    assert any("useradd" in one.rest for one in own[:user])
    assert not any(one.name in ("COPY", "USER") for one in own[user + 1 :])
    assert own[-1].name in ("ENTRYPOINT", "CMD")


@pytest.mark.parametrize("name", ["rangewatch", "spark"])
def test_containers_of_ours_write_to_their_volume_and_nowhere_else(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["tmpfs"] == ["/tmp"]
    written = [path for path in environment(service["build"]["target"]).values() if path.startswith("/var")]
    [volume] = mounts(service)
    assert all(path.startswith(volume) for path in written)


def test_the_image_alone_asks_for_keys_and_the_stack_says_that_it_has_none() -> None:
    """The image binds all addresses: without keys it starts only where somebody has said so."""
    inside = environment("service")
    assert not is_loopback(inside[f"{PREFIX}HOST"])
    assert not {f"{PREFIX}ALLOW_OPEN", f"{PREFIX}KEYS_FILE"} & inside.keys()
    assert SERVICES["rangewatch"]["environment"][f"{PREFIX}ALLOW_OPEN"] == "True"


@pytest.mark.parametrize("stage", IMAGES)
def test_what_an_image_takes_from_another_stage_is_made_there(stage: str) -> None:
    stages = [one.stage for one in dockerfile() if one.name == "FROM"]
    for copy in instructions(stage, "COPY"):
        [flag] = copy.flags
        earlier = flag.removeprefix("--from=")
        assert stages.index(earlier) < stages.index(stage)
        assert any(f"venv {copy.words[0]}" in one.rest for one in instructions(earlier, "RUN"))
        assert environment(stage)["PATH"].startswith(f"{copy.words[1]}/bin:")


def test_the_python_of_the_images_is_one_that_the_project_allows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bases = {one.words[0] for one in dockerfile() if one.name == "FROM"}
    [base] = bases
    wanted = project["requires-python"].removeprefix(">=")
    assert base.startswith(f"python:{wanted}-slim")


def variables() -> list[tuple[str, str]]:
    """Every RANGEWATCH_ variable of the images and the compose file, with its value."""
    sets = [environment(stage) for stage in IMAGES]
    sets += [service.get("environment", {}) for service in SERVICES.values()]
    return [(name, value) for one in sets for name, value in one.items() if name.startswith(PREFIX)]


def test_every_variable_is_a_setting_and_its_value_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {name for name, _ in variables()} >= {f"{PREFIX}LOG", f"{PREFIX}HOST", f"{PREFIX}PORT"}
    for name, value in variables():
        field = name.removeprefix(PREFIX).lower()
        assert field in Settings.model_fields, name
        monkeypatch.setenv(name, value)
        assert str(getattr(Settings(), field)) == value


def test_the_service_starts_with_arguments_that_it_knows() -> None:
    command = instructions("service", "CMD")[0].words
    assert parser().parse_args(command).run
    assert "command" not in SERVICES["rangewatch"]
    assert SERVICES["rangewatch"]["build"]["target"] == "service"


def test_the_spark_job_starts_with_arguments_that_it_knows() -> None:
    [entrypoint] = instructions("spark", "ENTRYPOINT")
    assert entrypoint.words[:3] == ["python", "-m", "spark_connector"]
    given = spark_parser().parse_args(entrypoint.words[3:] + SERVICES["spark"]["command"])
    assert given.bootstrap == advertised()["PLAINTEXT"]
    assert given.prefix == Settings.model_fields["topic_prefix"].default
    [fetch] = (one for one in instructions("spark", "RUN") if "spark_connector.jars" in one.rest)
    assert fetch.words[-1] == str(given.jars)
    assert any(Path(given.out).is_relative_to(inside) for inside in mounts(SERVICES["spark"]))


def test_the_service_and_the_job_speak_to_the_broker_of_the_stack() -> None:
    log = SERVICES["rangewatch"]["environment"][f"{PREFIX}LOG"]
    assert log == f"kafka:{advertised()['PLAINTEXT']}"
    host, port = advertised()["PLAINTEXT"].split(":")
    assert host == SERVICES["kafka"]["hostname"] == "kafka"
    listeners = SERVICES["kafka"]["environment"]["KAFKA_LISTENERS"].split(",")
    assert f"PLAINTEXT://:{port}" in listeners
    assert f"127.0.0.1:{advertised()['MACHINE'].split(':')[1]}:9094" in SERVICES["kafka"]["ports"]
    assert "kafka:9092" in SERVICES["kafka"]["healthcheck"]["test"]


def test_the_broker_is_the_one_of_the_tests() -> None:
    """Same version, same settings as the broker that ``make kafka`` starts."""
    version = re.search(
        r"<artifactId>kafka_.*?<version>(.*?)<", (ROOT / "deploy/kafka/pom.xml").read_text(), re.S
    )
    assert version and SERVICES["kafka"]["image"] == f"apache/kafka:{version[1]}"
    given = SERVICES["kafka"]["environment"]
    for line in (ROOT / "deploy/kafka/server.properties").read_text().splitlines():
        if line and not line.startswith("#"):
            name, value = line.split("=")
            assert given["KAFKA_" + name.replace(".", "_").upper()] == value, name


def test_the_health_check_is_a_command_that_reads_the_settings_of_the_environment() -> None:
    [check] = instructions("service", "HEALTHCHECK")
    assert json.loads(check.rest.removeprefix("CMD ")) == ["rangewatch", "health"]
    paths = {getattr(route, "path", "") for route in router.routes}
    assert health._PATH in paths
    assert prometheus()["scrape_configs"][0]["metrics_path"] in paths


def test_ports_are_the_same_everywhere() -> None:
    port = environment("service")[f"{PREFIX}PORT"]
    assert instructions("service", "EXPOSE")[0].words == [port]
    assert SERVICES["rangewatch"]["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert prometheus()["scrape_configs"][0]["static_configs"] == [{"targets": [f"rangewatch:{port}"]}]


def test_nothing_is_open_to_the_network() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(ports) == 4
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_volumes_and_mounted_paths_exist() -> None:
    named = set()
    for service in SERVICES.values():
        for outside in mounts(service).values():
            if outside.startswith("."):
                assert (ROOT / outside).is_dir(), outside
            else:
                named.add(outside)
    assert named == set(compose()["volumes"])


@pytest.mark.parametrize("name", ["rangewatch", "spark"])
def test_what_a_container_of_ours_writes_survives_it(name: str) -> None:
    stage = SERVICES[name]["build"]["target"]
    [volume] = instructions(stage, "VOLUME")
    assert set(mounts(SERVICES[name])) == set(volume.words) == {instructions(stage, "WORKDIR")[0].words[0]}
    assert any(f"--owner=rangewatch {volume.words[0]}" in one.rest for one in instructions(stage, "RUN"))


def test_services_wait_for_services_that_can_tell_their_health() -> None:
    for service in SERVICES.values():
        waits = service.get("depends_on", {})
        for other in waits:
            assert other in SERVICES
            if isinstance(waits, dict) and waits[other]["condition"] == "service_healthy":
                image_checks = SERVICES[other].get("build", {}).get("target") == "service"
                assert image_checks or "healthcheck" in SERVICES[other], other


def test_grafana_finds_its_data_source_and_its_dashboard() -> None:
    inside = mounts(SERVICES["grafana"])
    provisioning = ROOT / inside["/etc/grafana/provisioning"]
    [source] = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert SERVICES["prometheus"]["ports"] == ["127.0.0.1:9090:9090"]
    [provider] = yaml.safe_load((provisioning / "dashboards/rangewatch.yml").read_text())["providers"]
    folder = provider["options"]["path"]
    home = Path(SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert str(home.parent) == folder
    assert (ROOT / inside[folder] / home.name).is_file()
    asked = {str(panel["datasource"]) for panel in dashboard()["panels"]}
    asked |= {str(target["datasource"]) for panel in dashboard()["panels"] for target in panel["targets"]}
    assert asked == {str({"type": source["type"], "uid": source["uid"]})}


def test_panels_lie_side_by_side() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids)
