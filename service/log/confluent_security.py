"""How the settings of security reach confluent-kafka; ``kafka_security`` has it for kafka-python.

The library reads the files by itself, so it is given their names. What it has no counterpart for is refused,
never dropped: a connection would be less safe than asked for. It sets no lowest version of TLS; the OpenSSL
that comes with it takes 1.2 and newer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from service.settings import Settings, SettingsError, read_secret

_SSL_NAMES = {
    "kafka_ssl_cafile": "ssl.ca.location",
    "kafka_ssl_certfile": "ssl.certificate.location",
    "kafka_ssl_crlfile": "ssl.crl.location",
    "kafka_ssl_ciphers": "ssl.cipher.suites",
}
#: It takes the brokers' principal to be the service on the broker's own host, always.
_WITHOUT_COUNTERPART = ("kafka_sasl_kerberos_name", "kafka_sasl_kerberos_domain_name")
#: How long a token is used before it is asked for anew: whoever keeps it fresh does so more seldom.
_TOKEN_S = 60.0


def librdkafka_options(settings: Settings) -> dict[str, Any]:
    """Options that the library's consumer, producer and admin client all know. Raises SettingsError."""
    options: dict[str, Any] = {"security.protocol": settings.kafka_security_protocol}
    if settings.kafka_security_protocol.endswith("SSL"):
        options |= _ssl_options(settings)
    if settings.kafka_sasl_mechanism:
        options |= {"sasl.mechanism": settings.kafka_sasl_mechanism, **_sasl_options(settings)}
    return options


def _ssl_options(settings: Settings) -> dict[str, Any]:
    options = {theirs: getattr(settings, ours) for ours, theirs in _SSL_NAMES.items()}
    if settings.kafka_ssl_certfile:
        options["ssl.key.location"] = settings.kafka_ssl_keyfile or settings.kafka_ssl_certfile
        options["ssl.key.password"] = settings.secret("kafka_ssl_password")
    options["ssl.endpoint.identification.algorithm"] = (
        "https" if settings.kafka_ssl_check_hostname else "none"
    )
    return {name: value for name, value in options.items() if value not in ("", None)}


def _sasl_options(settings: Settings) -> dict[str, Any]:
    if settings.kafka_sasl_mechanism == "OAUTHBEARER":
        return {"oauth_cb": _token(settings.kafka_sasl_oauth_token_file)}
    if settings.kafka_sasl_mechanism != "GSSAPI":
        return {
            "sasl.username": settings.kafka_sasl_plain_username,
            "sasl.password": settings.secret("kafka_sasl_plain_password"),
        }
    for name in _WITHOUT_COUNTERPART:
        if getattr(settings, name):
            raise SettingsError(
                f"setting {name!r}: confluent-kafka has none; use kafka_client = kafka-python"
            )
    return {
        "sasl.kerberos.service.name": settings.kafka_sasl_kerberos_service_name,
        "sasl.kerberos.min.time.before.relogin": 0,  # tickets are somebody else's, as over kafka-python
    }


def _token(file: str) -> Callable[[str], tuple[str, float]]:
    def token(_: str) -> tuple[str, float]:
        return read_secret(file, "setting 'kafka_sasl_oauth_token_file'"), time.time() + _TOKEN_S

    return token
