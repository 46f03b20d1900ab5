from __future__ import annotations

from pathlib import Path

import pytest

from service.settings import Settings, SettingsError, load_settings


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"RANGEWATCH_{name.upper()}", raising=False)
    monkeypatch.delenv("RANGEWATCH_CONFIG", raising=False)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "settings.toml"
    file.write_text('port = 1\nhost = "file"\ngroup = "file"\n')
    return file


def test_flags_come_before_variables_before_the_file(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANGEWATCH_PORT", "2")
    monkeypatch.setenv("RANGEWATCH_HOST", "variable")
    settings = load_settings({"port": "3"}, config)
    assert (settings.port, settings.host, settings.group) == (3, "variable", "file")
    assert settings.max_streams == Settings.model_fields["max_streams"].default


def test_a_variable_may_name_the_file(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANGEWATCH_CONFIG", str(config))
    assert load_settings({}).group == "file"


def test_variables_that_are_no_settings_are_nobodys_business(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANGEWATCH_SHARED", "elsewhere")
    assert load_settings({}).port == 8080


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("prot = 1", "prot"),
        ('port = "eighty"', "port"),
        ("port = 70000", "port"),
        ("max_streams = 0", "max_streams"),
        ("stop_timeout_s = nan", "stop_timeout_s"),
        ('log = "oracle:x"', "log"),
        ('log = "sqlite:"', "log"),
        ('topic_prefix = "a b"', "topic_prefix"),
        ("port =", "settings.toml"),
    ],
)
def test_a_mistake_is_named(config: Path, text: str, named: str) -> None:
    config.write_text(text)
    with pytest.raises(SettingsError, match=named):
        load_settings({}, config)


@pytest.mark.parametrize(
    ("name", "address"),
    [
        *(
            ("schema_registry_url", f"http://{rest}")
            for rest in ("svc:hunter2@reg", "svc:hun/ter2@reg", "reg/?key=hunter2", "reg#hunter2")
        ),
        ("log", "kafka:svc:hunter2@broker:9092"),
        ("log", "kafka://svc:hunter2@broker:9092"),
        ("log", "mysql://svc:hunter2@broker/events"),
        ("topic_prefix", "http://svc:hunter2@reg"),
    ],
)
@pytest.mark.parametrize("place", ["flag", "variable", "file"])
def test_an_address_with_a_secret_is_refused_and_not_quoted(
    config: Path, monkeypatch: pytest.MonkeyPatch, place: str, name: str, address: str
) -> None:
    config.write_text(f'{name} = "{address}"\n' if place == "file" else "")
    if place == "variable":
        monkeypatch.setenv(f"RANGEWATCH_{name.upper()}", address)
    with pytest.raises(SettingsError, match=f"setting '{name}'") as refused:
        load_settings({name: address} if place == "flag" else {}, config)
    assert "ter2" not in str(refused.value)


def test_a_file_that_is_not_utf8_is_named(config: Path) -> None:
    config.write_bytes(b'host = "\xff"')
    with pytest.raises(SettingsError, match=r"settings\.toml is not UTF-8"):
        load_settings({}, config)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.toml"):
        load_settings({}, tmp_path / "nowhere.toml")


def test_every_setting_says_what_it_is() -> None:
    assert all(field.description for field in Settings.model_fields.values())


@pytest.mark.parametrize("log", ["sqlite:a:b.db", "kafka:one:9092,two:9092"])
def test_a_log_has_a_kind_and_a_place(log: str) -> None:
    settings = load_settings({"log": log})
    assert f"{settings.log_kind}:{settings.log_place}" == log
