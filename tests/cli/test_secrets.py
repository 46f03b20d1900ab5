"""Secrets stay secret: over the whole life of a process, in what it says, writes and keeps."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from service.keys import Role, edit, new_key, with_key, without_key
from service.settings import Settings, SettingsError, load_settings, secret_names
from tests.api.harness import TIMEOUT_S
from tests.certificates import Authority
from tests.cli.conftest import serving

PASSWORD = "the-password-of-the-key-of-the-certificate"


def add_key(file: Path, name: str, role: Role, expires: datetime | None = None) -> str:
    text, key = new_key(name, role, now=datetime.now(UTC), expires=expires)
    edit(file, lambda document: with_key(document, key))
    return text


def test_nothing_that_a_process_says_or_keeps_has_a_secret_in_it(tmp_path: Path) -> None:
    keys, home = tmp_path / "keys.toml", tmp_path / "home"
    home.mkdir()
    admin, reader = add_key(keys, "ana", Role.ADMIN), add_key(keys, "rita", Role.READ)
    over = add_key(keys, "otto", Role.ADMIN, datetime.now(UTC) - timedelta(days=1))
    unknown = f"rw_{'ab' * 6}_{'cd' * 32}"
    authority = Authority(tmp_path)
    server = authority.sign("server", PASSWORD)
    flags = ["--keys-file", keys, "--tls-cert", server.cert, "--tls-key", server.key]
    trust = ssl.create_default_context(cafile=str(authority.cert))
    heard: list[str] = []

    def hear(response: httpx.Response) -> None:
        response.read()
        heard.append(f"{response.headers} {response.text}")

    with (
        serving(home, *flags, tls=trust, RANGEWATCH_TLS_KEY_PASSWORD=PASSWORD) as served,
        httpx.Client(
            base_url=served.url, verify=trust, timeout=TIMEOUT_S, event_hooks={"response": [hear]}
        ) as client,
    ):

        def ask(method: str, path: str, key: str, **sent: object) -> int:
            shown = {"Authorization": f"Bearer {key}", "X-Actor": key}
            return client.request(method, path, headers=shown, **sent).status_code  # type: ignore[arg-type]

        assert ask("PUT", "/v1/sources/s", admin, json={"attributes": {"x": "number"}}) == 201
        assert ask("PUT", "/v1/queries/q", admin, json={"source": "s", "where": "x > 0"}) == 201
        assert ask("POST", "/v1/events?source=s&wait=true", admin, json={"stream_id": "v", "x": 1}) == 200
        assert ask("POST", "/v1/events?source=s&wait=true", admin, content=b'{"x": "bad"}') == 200
        assert ask("PUT", "/v1/queries/q", reader, json={}) == 403
        assert ask("GET", "/v1/queries", over) == 401
        assert ask("GET", "/v1/queries", unknown) == 401
        assert ask("GET", f"/v1/queries/{unknown}", f"{admin} {admin}") == 401
        keys.chmod(0o666)
        edit(keys, lambda document: with_key(document, new_key("new", Role.READ, now=datetime.now(UTC))[1]))
        assert ask("GET", "/v1/queries", admin) == 200
        keys.chmod(0o600)
        edit(keys, lambda document: without_key(document, reader.split("_")[1]))
        assert ask("GET", "/v1/queries", reader) == 401
        for path in (
            "/v1/history",
            "/metrics",
            "/openapi.json",
            "/v1/topics/dead_letter",
            "/v1/topics/borders",
        ):
            assert ask("GET", path, admin) == 200
        assert served.stop() == 0

    kept = b"".join(file.read_bytes() for file in home.iterdir())
    assert b"everybody may write it" in kept, "the log is among what was looked at"
    everything = "\n".join(heard).encode() + kept
    assert b"ana" in everything
    for secret in (admin, reader, over, unknown):
        assert secret.rpartition("_")[2].encode() not in everything
    assert PASSWORD.encode() not in everything
    hashes = [line.split('"')[1] for line in keys.read_text().splitlines() if line.startswith("hash")]
    assert hashes
    assert not any(hash.removeprefix("sha256:").encode() in everything for hash in hashes)


@pytest.fixture(
    params=[
        "kafka_sasl_plain_password",
        "kafka_ssl_password",
        "tls_key_password",
        "schema_registry_password",
        "schema_registry_token",
        "schema_registry_key_password",
    ]
)
def secret(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_secret_is_known_as_one(secret: str) -> None:
    assert secret in secret_names()
    suspicious = {name for name in Settings.model_fields if name.endswith(("password", "secret", "token"))}
    assert suspicious == set(secret_names())
    assert all(f"{name}_file" in Settings.model_fields for name in suspicious)


def test_settings_do_not_show_a_secret(secret: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"RANGEWATCH_{secret.upper()}", "hunter2")
    settings = load_settings({})
    assert settings.secret(secret) == "hunter2"
    for shown in (repr(settings), str(settings), settings.model_dump_json(), str(settings.model_dump())):
        assert "hunter2" not in shown
    with pytest.raises(SettingsError) as refused:
        load_settings({"max_page": "none"})
    assert "hunter2" not in str(refused.value)
    with pytest.raises(SettingsError, match="are both given") as refused:
        load_settings({f"{secret}_file": str(tmp_path / "file")})
    assert "hunter2" not in str(refused.value)


def test_a_secret_of_the_wrong_type_is_refused_without_being_shown(secret: str, tmp_path: Path) -> None:
    config = tmp_path / "settings.toml"
    config.write_text(f"{secret} = 271828\n")
    with pytest.raises(SettingsError, match=secret) as refused:
        load_settings({}, config)
    assert "271828" not in str(refused.value)


def test_a_secret_comes_from_its_file_without_the_last_line_break(secret: str, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    for written, read in (("hunter2", "hunter2"), ("hunter2\n", "hunter2"), (" hunter 2 \r\n", " hunter 2 ")):
        file.write_text(written)
        assert load_settings({f"{secret}_file": str(file)}).secret(secret) == read
    file.unlink()
    with pytest.raises(SettingsError, match=f"{secret}_file"):
        load_settings({f"{secret}_file": str(file)}).secret(secret)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"tls_key": "key.pem"}, "tls_cert"),
        ({"kafka_sasl_mechanism": "PLAIN"}, "kafka_security_protocol"),
        ({"kafka_security_protocol": "SASL_SSL"}, "kafka_sasl_mechanism"),
        (
            {"kafka_security_protocol": "SASL_SSL", "kafka_sasl_mechanism": "PLAIN"},
            "kafka_sasl_plain_username",
        ),
        (
            {"kafka_security_protocol": "SASL_SSL", "kafka_sasl_mechanism": "OAUTHBEARER"},
            "kafka_sasl_oauth_token_file",
        ),
        ({"kafka_security_protocol": "TLS"}, "kafka_security_protocol"),
        ({"max_requests_per_s": "-1"}, "max_requests_per_s"),
        ({"max_requests_per_s": "nan"}, "max_requests_per_s"),
        ({"max_requests_burst": "0"}, "max_requests_burst"),
    ],
)
def test_settings_that_do_not_go_together_are_named(given: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        load_settings(given)
