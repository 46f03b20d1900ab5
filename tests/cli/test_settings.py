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


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.toml"):
        load_settings({}, tmp_path / "nowhere.toml")


def test_every_setting_says_what_it_is() -> None:
    assert all(field.description for field in Settings.model_fields.values())


@pytest.mark.parametrize("log", ["sqlite:a:b.db", "kafka:one:9092,two:9092"])
def test_a_log_has_a_kind_and_a_place(log: str) -> None:
    settings = load_settings({"log": log})
    assert f"{settings.log_kind}:{settings.log_place}" == log
