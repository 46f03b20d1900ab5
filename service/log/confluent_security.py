"""Security options of kafka-python under the names that confluent-kafka has for them.

One set of settings serves both libraries: what is named here as kafka-python names it, is turned into what
librdkafka calls it. An option that has no counterpart is refused, never dropped: it would leave a connection
less safe than asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

_NAMES = {
    "security_protocol": "security.protocol",
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_password": "ssl.key.password",
    "ssl_crlfile": "ssl.crl.location",
    "ssl_ciphers": "ssl.cipher.suites",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
    "sasl_kerberos_service_name": "sasl.kerberos.service.name",
}
#: How long a token is used before it is asked for anew: whoever keeps it fresh does so more seldom.
_TOKEN_S = 60.0


def librdkafka_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The same options for confluent-kafka. Raises ValueError that names one without a counterpart."""
    named: dict[str, Any] = {}
    for name, value in options.items():
        if name == "ssl_check_hostname":
            named["ssl.endpoint.identification.algorithm"] = "https" if value else "none"
        elif name == "sasl_oauth_token_provider":
            named["oauth_cb"] = _token(value.token)
        elif name in _NAMES:
            named[_NAMES[name]] = value
        else:
            raise ValueError(f"confluent-kafka has no option like {name!r}: use kafka_client = kafka-python")
    return named


def _token(token: Callable[[], str]) -> Callable[[str], tuple[str, float]]:
    return lambda _: (token(), time.time() + _TOKEN_S)
