"""How the settings of security reach the library that talks to Kafka.

That is kafka-python here; ``confluent_security`` has the options of the other one. A setting
``kafka_sasl_plain_username`` is the client's ``sasl_plain_username``, and so on; what is empty is left to the
client. What is about TLS becomes one context, because the client cannot read all of it (its ``ssl_crlfile``
fails), and so that a mistake ends the start instead of being tried again and again.

Not for: addresses, topics and time limits (``kafka_client``).
"""

from __future__ import annotations

from typing import Any

from service.log.confluent_security import librdkafka_options
from service.log.kafka_library import AUTO, CONFLUENT_KAFKA, KAFKA_PYTHON, chosen
from service.settings import Settings, SettingsError, read_secret
from service.tls import kafka_context

_PREFIX = "kafka_"
_TOKEN_FILE = "kafka_sasl_oauth_token_file"


def client_of(settings: Settings) -> str:
    """The library that the settings stand for. The native one is mostly built without Kerberos."""
    if settings.kafka_client == AUTO and settings.kafka_sasl_mechanism == "GSSAPI":
        return KAFKA_PYTHON
    return chosen(settings.kafka_client)


def client_options(settings: Settings, client: str = KAFKA_PYTHON) -> dict[str, Any]:
    """Options that a library's consumer, producer and admin client all know. Raises SettingsError."""
    has_tls = settings.kafka_security_protocol.endswith("SSL")
    context = kafka_context(settings) if has_tls else None  # files that do not fit are told of, whoever reads
    if chosen(client) == CONFLUENT_KAFKA:
        return librdkafka_options(settings)
    options: dict[str, Any] = {"security_protocol": settings.kafka_security_protocol}
    if context is not None:
        options["ssl_context"] = context
    if settings.kafka_sasl_mechanism:
        options |= _sasl_options(settings)
    return options


def _sasl_options(settings: Settings) -> dict[str, Any]:
    password = settings.secret("kafka_sasl_plain_password")
    options = {"sasl_plain_password": password}
    for name in Settings.model_fields:
        if name.startswith(f"{_PREFIX}sasl_") and not name.endswith(("_file", "_password")):
            options[name.removeprefix(_PREFIX)] = getattr(settings, name)
    if settings.kafka_sasl_oauth_token_file:
        options["sasl_oauth_token_provider"] = _token_provider(settings.kafka_sasl_oauth_token_file)
    return {name: value for name, value in options.items() if value not in ("", None)}


def _token_provider(file: str) -> Any:
    # The library asks for a subclass of its own, and is imported only where Kafka is used.
    from kafka.errors import KafkaConnectionError
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class TokenFile(AbstractTokenProvider):  # type: ignore[misc]
        """A token that somebody else keeps fresh, in a file."""

        def token(self) -> str:
            try:
                return read_secret(file, f"setting {_TOKEN_FILE!r}")
            except SettingsError as error:  # it is replaced at this moment, perhaps: try again
                raise KafkaConnectionError(str(error)) from None

    return TokenFile()
