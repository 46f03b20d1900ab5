"""A real broker that lets in only who shows a certificate and a name: TLS both ways, and SASL.

Use: ``from tests.secured_broker import secured`` in a test's file or conftest, marked ``kafka``.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ScramMechanism, UserScramCredentialUpsertion

from deploy.kafka.broker import HOST, free_ports, start
from tests.certificates import Authority, Signed

USER = "worker"
PASSWORD = "the-password-of-the-worker"
KEY_PASSWORD = "the-password-of-the-workers-key"

_JAAS = "org.apache.kafka.common.security"


class Secured(NamedTuple):
    """``address`` takes TLS and SASL only; ``client`` is a certificate that it takes, its key closed by
    ``KEY_PASSWORD``."""

    address: str
    authority: Authority
    client: Signed
    folder: Path

    def settings(self, **others: str) -> dict[str, str]:
        """Settings for PLAIN, each as text, secrets in files."""
        return {
            "kafka_security_protocol": "SASL_SSL",
            "kafka_ssl_cafile": str(self.authority.cert),
            "kafka_ssl_certfile": str(self.client.cert),
            "kafka_ssl_keyfile": str(self.client.key),
            "kafka_ssl_password_file": self._secret("key-password", KEY_PASSWORD),
            "kafka_sasl_mechanism": "PLAIN",
            "kafka_sasl_plain_username": USER,
            "kafka_sasl_plain_password_file": self._secret("password", PASSWORD),
            **others,
        }

    def token(self) -> str:
        """The file with a bearer token of this hour. The broker takes those that nobody has signed."""
        now = int(time.time())
        parts = ({"alg": "none"}, {"sub": USER, "iat": now, "exp": now + 3_600})
        words = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
        return self._secret("token", ".".join([*words, ""]))

    def _secret(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(f"{text}\n")
        return str(path)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder)
    server, client = authority.sign("broker"), authority.sign("client", KEY_PASSWORD)
    keystore = folder / "broker-keystore.pem"
    keystore.write_text(server.key.read_text() + server.cert.read_text())
    port, controller_port, secure_port = free_ports(3)
    listener = "listener.name.secure"
    settings = {
        "listeners": f"PLAINTEXT://{HOST}:{port},SECURE://{HOST}:{secure_port}"
        f",CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port},SECURE://{HOST}:{secure_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        f"{listener}.ssl.keystore.type": "PEM",
        f"{listener}.ssl.keystore.location": keystore,
        f"{listener}.ssl.truststore.type": "PEM",
        f"{listener}.ssl.truststore.location": authority.cert,
        f"{listener}.ssl.client.auth": "required",
        f"{listener}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{listener}.plain.sasl.jaas.config": f"{_JAAS}.plain.PlainLoginModule required"
        f' user_{USER}="{PASSWORD}";',
        f"{listener}.oauthbearer.sasl.jaas.config": f"{_JAAS}.oauthbearer.OAuthBearerLoginModule required"
        ' unsecuredLoginStringClaim_sub="broker";',
    }
    for mechanism in ("256", "512"):
        settings[f"{listener}.scram-sha-{mechanism}.sasl.jaas.config"] = (
            f"{_JAAS}.scram.ScramLoginModule required;"
        )
    node = start(port, controller_port, folder / "node", settings)
    try:
        _know(node.address)
        yield Secured(f"{HOST}:{secure_port}", authority, client, folder)
    finally:
        node.stop()


def _know(address: str) -> None:
    """Tells the broker the user's password for SCRAM, which it keeps in the cluster's own log."""
    admin = KafkaAdminClient(bootstrap_servers=address)
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        told = admin.alter_user_scram_credentials([UserScramCredentialUpsertion(USER, mechanism, PASSWORD)])
        assert told == {USER: None}
    admin.close()
