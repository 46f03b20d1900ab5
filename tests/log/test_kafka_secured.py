"""Kafka with TLS and SASL: the settings reach the client whole, and a real broker lets it in, or not."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from pydantic import SecretStr

from service.log.kafka import KafkaLog
from service.log.kafka_library import AUTO, CONFLUENT_KAFKA, KAFKA_PYTHON
from service.log.kafka_security import client_of, client_options
from service.log.port import LogUnavailable, Message
from service.settings import Settings, SettingsError, load_settings
from tests.api.harness import TIMEOUT_S
from tests.certificates import Authority
from tests.cli.conftest import eventually_at_work, rangewatch, serving
from tests.secured_broker import KEY_PASSWORD, PASSWORD, Secured
from tests.secured_broker import secured as secured

#: What the library knows of security and no setting of ours is named after.
ANOTHER_WAY = {
    "ssl_context",  # made of the settings
    "sasl_oauth_token_provider",  # kafka_sasl_oauth_token_file
}


LIBRARIES = pytest.mark.parametrize("client", [KAFKA_PYTHON, CONFLUENT_KAFKA])


def test_every_option_of_security_is_a_setting() -> None:
    for client in (KafkaConsumer, KafkaProducer, KafkaAdminClient):
        known = {name for name in client.DEFAULT_CONFIG if name.startswith(("ssl_", "sasl_", "security_"))}
        assert {f"kafka_{name}" for name in known - ANOTHER_WAY} <= Settings.model_fields.keys()


def test_settings_reach_the_client_under_its_own_names(tmp_path: Path) -> None:
    assert client_options(Settings()) == {"security_protocol": "PLAINTEXT"}
    password = tmp_path / "password"
    password.write_text("pass word \n")
    settings = Settings(
        kafka_security_protocol="SASL_PLAINTEXT",
        kafka_sasl_mechanism="SCRAM-SHA-512",
        kafka_sasl_plain_username="ana",
        kafka_sasl_plain_password_file=str(password),
    )
    assert client_options(settings) == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "ana",
        "sasl_plain_password": "pass word ",
        "sasl_kerberos_service_name": "kafka",
    }
    kerberos = Settings(
        kafka_security_protocol="SASL_PLAINTEXT",
        kafka_sasl_mechanism="GSSAPI",
        kafka_sasl_kerberos_name="kafka/broker@REALM",
        kafka_sasl_kerberos_service_name="log",
        kafka_sasl_kerberos_domain_name="broker.example",
    )
    assert client_options(kerberos) == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_name": "kafka/broker@REALM",
        "sasl_kerberos_service_name": "log",
        "sasl_kerberos_domain_name": "broker.example",
    }


def test_settings_reach_the_other_library_as_names_of_files(tmp_path: Path) -> None:
    assert client_options(Settings(), CONFLUENT_KAFKA) == {"security.protocol": "PLAINTEXT"}
    signed = Authority(tmp_path).sign("client", "hunter2")
    both = tmp_path / "both"  # the key behind the certificate
    both.write_text(signed.cert.read_text() + signed.key.read_text())
    settings = Settings(
        kafka_security_protocol="SASL_SSL",
        kafka_ssl_cafile=str(signed.cert),
        kafka_ssl_certfile=str(both),
        kafka_ssl_password=SecretStr("hunter2"),
        kafka_ssl_ciphers="ECDHE+AESGCM",
        kafka_ssl_check_hostname=False,
        kafka_sasl_mechanism="PLAIN",
        kafka_sasl_plain_username="ana",
        kafka_sasl_plain_password=SecretStr("pass word"),
    )
    options = client_options(settings, CONFLUENT_KAFKA)
    assert options == {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(signed.cert),
        "ssl.certificate.location": str(both),
        "ssl.key.location": str(both),
        "ssl.key.password": "hunter2",
        "ssl.cipher.suites": "ECDHE+AESGCM",
        "ssl.endpoint.identification.algorithm": "none",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ana",
        "sasl.password": "pass word",
    }
    Producer(options).flush()  # which reads the files


def test_kerberos_is_told_as_far_as_the_other_library_knows_it() -> None:
    given = {
        "kafka_security_protocol": "SASL_PLAINTEXT",
        "kafka_sasl_mechanism": "GSSAPI",
        "kafka_client": AUTO,
    }
    settings = load_settings({**given, "kafka_sasl_kerberos_service_name": "log"})
    assert (client_of(settings), client_of(Settings(kafka_client=AUTO))) == (KAFKA_PYTHON, CONFLUENT_KAFKA)
    assert settings.kafka_client == AUTO
    assert client_options(settings, CONFLUENT_KAFKA) == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "log",
        "sasl.kerberos.min.time.before.relogin": 0,
    }
    for name in ("kafka_sasl_kerberos_name", "kafka_sasl_kerberos_domain_name"):
        with pytest.raises(SettingsError, match=f"{name}.*kafka_client = kafka-python"):
            client_options(load_settings({**given, name: "broker"}), CONFLUENT_KAFKA)


def test_a_token_is_read_anew_for_every_connection(tmp_path: Path) -> None:
    file = tmp_path / "token"
    settings = Settings(
        kafka_security_protocol="SASL_SSL",
        kafka_sasl_mechanism="OAUTHBEARER",
        kafka_sasl_oauth_token_file=str(file),
    )
    provider = client_options(settings)["sasl_oauth_token_provider"]
    call = client_options(settings, CONFLUENT_KAFKA)["oauth_cb"]
    for token in ("one", "two"):
        file.write_text(f"{token}\n")
        assert provider.token() == token
        found, until = call("")
        assert found == token
        assert until > time.time()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"kafka_ssl_cafile": "{junk}"}, "kafka_ssl_cafile"),
        ({"kafka_ssl_cafile": "{folder}/none"}, "kafka_ssl_cafile"),
        ({"kafka_ssl_crlfile": "{junk}"}, "kafka_ssl_crlfile"),
        ({"kafka_ssl_certfile": "{junk}"}, "kafka_ssl_certfile"),
        ({"kafka_ssl_certfile": "{cert}", "kafka_ssl_keyfile": "{key}"}, "kafka_ssl_certfile"),
        (
            {"kafka_ssl_certfile": "{cert}", "kafka_ssl_keyfile": "{key}", "kafka_ssl_password": "hunter2"},
            "fit",
        ),
        ({"kafka_ssl_ciphers": "none-such"}, "kafka_ssl_ciphers"),
        (
            {"kafka_ssl_certfile": "{cert}", "kafka_ssl_password_file": "{folder}/none"},
            "kafka_ssl_password_file",
        ),
    ],
)
@LIBRARIES
def test_what_does_not_fit_is_named_at_the_start(
    tmp_path: Path, given: dict[str, str], named: str, client: str
) -> None:
    (tmp_path / "junk").write_text("none")
    closed = Authority(tmp_path).sign("closed", "another")
    places = {"junk": tmp_path / "junk", "folder": tmp_path, "cert": closed.cert, "key": closed.key}
    settings = {name: value.format(**places) for name, value in given.items()}
    with pytest.raises(SettingsError, match=named) as refused:
        client_options(load_settings({"kafka_security_protocol": "SSL", **settings}), client)
    assert "hunter2" not in str(refused.value)


def opened(secured: Secured, client: str, timeout_s: float = 20.0, **others: Any) -> KafkaLog:
    settings = load_settings(secured.settings(**others))
    return KafkaLog(
        secured.address,
        transactional_id="test",
        group="test",
        partitions=1,
        client=client,
        client_options=partial(client_options, settings),
        timeout_s=timeout_s,
    )


@pytest.mark.kafka
@LIBRARIES
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_a_worker_that_shows_who_it_is_is_let_in(secured: Secured, mechanism: str, client: str) -> None:
    others = {"kafka_sasl_mechanism": mechanism, "kafka_sasl_oauth_token_file": secured.token()}
    log = opened(secured, client, **others)
    log.open()
    try:
        offsets = log.append_commands([Message(b"key", mechanism.encode())], after=log.end_of_commands())
        (found,) = log.commands(offsets[0], offsets[0] + 1)
        assert found.value == mechanism.encode()
    finally:
        log.close()


@pytest.mark.kafka
@pytest.mark.parametrize(
    "others",
    [
        {"kafka_sasl_plain_password_file": "", "kafka_sasl_plain_password": "wrong-hunter2"},
        {"kafka_ssl_cafile": "{other}"},
        {"kafka_ssl_certfile": "", "kafka_ssl_keyfile": "", "kafka_ssl_password_file": ""},
        {"kafka_security_protocol": "SASL_PLAINTEXT"},
    ],
)
@LIBRARIES
def test_who_does_not_belong_is_kept_out(
    secured: Secured, tmp_path: Path, others: dict[str, str], client: str
) -> None:
    other = Authority(tmp_path, "other").cert
    given = {name: value.format(other=other) for name, value in others.items()}
    log = opened(secured, client, timeout_s=1.0, **given)
    with pytest.raises(LogUnavailable, match="a wrong password, certificate or security protocol") as refused:
        log.open()
    assert "hunter2" not in str(refused.value)


@pytest.mark.kafka
@LIBRARIES
def test_a_whole_service_on_a_secured_broker_tells_nobody_its_secrets(
    secured: Secured, tmp_path: Path, client: str
) -> None:
    variables = {f"RANGEWATCH_{name.upper()}": value for name, value in secured.settings().items()}
    del variables["RANGEWATCH_KAFKA_SASL_PLAIN_PASSWORD_FILE"]
    variables["RANGEWATCH_KAFKA_SASL_PLAIN_PASSWORD"] = PASSWORD
    log, prefix = f"kafka:{secured.address}", f"{client}."
    arguments = ("--log", log, "--topic-prefix", prefix, "--group", prefix, "--kafka-client", client)
    with (
        serving(tmp_path, *arguments, **variables) as served,
        httpx.Client(base_url=served.url, timeout=TIMEOUT_S) as asking,
    ):
        asking.put("/v1/sources/s", json={"attributes": {"x": "number"}}).raise_for_status()
        eventually_at_work(asking, partitions=4)
        asking.put("/v1/queries/q", json={"source": "s", "where": "x > 0"}).raise_for_status()
        event = {"stream_id": "v", "x": 1}
        sent = asking.post("/v1/events?source=s&wait=true", json=event).json()
        assert [one["topic"] for one in sent["outputs"]] == ["matches", "borders"]
        tail = ("tail", "borders", "--log", log, "--topic-prefix", prefix, "--once", "--json")
        tailed = rangewatch(*tail, **variables)
        assert json.loads(tailed.stdout)["value"]["enter"] == ["q"]
        told = "".join(asking.get(path).text for path in ("/metrics", "/v1/history", "/openapi.json"))
        assert served.stop() == 0
    told += served.log.read_text() + tailed.stdout + tailed.stderr
    assert PASSWORD not in told
    assert KEY_PASSWORD not in told
