"""Settings: every choice and every limit of the service, in one place.

A value comes from the first of these that has it: a flag, a ``RANGEWATCH_*`` variable, the TOML file, the
default below. The names are the same in all three (``--max-streams``, ``RANGEWATCH_MAX_STREAMS``,
``max_streams = ...``). An unknown key in the file is an error that names it.

A secret has no flag, since everybody on a machine may see the flags of a process: it is a variable, a line of
the TOML file, or a file of its own, which the setting of the same name with ``_file`` names. No text that is
made of settings (errors, logs, ``repr``) has a secret in it.

Not for: what belongs to one source or one query (policies, tags); those are data, not settings.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from service.model import MOST_DISJUNCTS, MOST_VERTICES

PREFIX = "RANGEWATCH_"

#: What addresses have beside a password or a token: settings of addresses may have none of these.
_OF_SECRETS = frozenset("@?#")

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class SettingsError(Exception):
    """A setting is wrong: the text names it, where it came from when that is known, and what would do."""


class Settings(BaseSettings):
    """See the module. Bytes, counts and seconds as the names say; every ``max_*`` is a limit."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    log: str = Field("sqlite:rangewatch.db", description="sqlite:FILE, or kafka:HOST:PORT,...")
    host: str = Field("127.0.0.1", description="address that the HTTP server binds")
    port: int = Field(8080, ge=0, le=65535, description="its port; 0 takes a free one")

    kafka_client: Literal["auto", "kafka-python", "confluent-kafka"] = Field(
        "kafka-python",
        description="library that talks to Kafka; auto: confluent-kafka if it is installed, or kafka-python",
    )
    topic_prefix: str = Field(
        "", pattern=r"^[A-Za-z0-9._-]{0,100}$", description="put before every topic name on Kafka"
    )
    group: str = Field(
        "rangewatch", min_length=1, max_length=200, description="consumer group; its workers share the load"
    )
    worker: str = Field(
        "",
        pattern=r"^[A-Za-z0-9._-]{0,200}$",
        description="name of this worker in the group; two under one name throw each other out, and say so"
        " (without it: host and port)",
    )
    partitions: Count = Field(4, description="partitions of the event topics created on Kafka")
    replication: Count = Field(1, description="replicas of the topics that the service creates on Kafka")
    log_timeout_s: Seconds = Field(
        20.0,
        description="how long Kafka may take to answer; a transaction is given up by the broker after half as"
        " long again",
    )
    session_timeout_s: Seconds = Field(
        15.0, description="silence after which the group gives a worker's partitions to the others"
    )

    keep_records_s: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="embedded log: how long processed events and records are kept; older ones go as new ones"
        " come, and its room in the file is used again; 0: for ever",
    )
    lost_input: Literal["stop", "go_on"] = Field(
        "stop",
        description="when events are gone from their topic before they were processed: stop with an error, or"
        " go_on with what there is",
    )

    max_connections: Count = Field(
        4_000,
        description="connections of clients at once, fewer where the process may not open so many files;"
        " then 503 (over TLS: closed)",
    )
    max_request_bytes: Count = Field(32 * 1024 * 1024, description="body of a request, bulk imports apart")
    max_bulk_bytes: Count = Field(
        512 * 1024 * 1024, description="body of a bulk import; and what a Parquet file in one unpacks to"
    )
    max_bodies_bytes: Count = Field(
        1024 * 1024 * 1024,
        description="all bodies that are read or worked on at once, which is no less than the largest one;"
        " then 503",
    )
    body_timeout_s: Seconds = Field(
        60.0, description="how long the next piece of a body may take, and all of it 30 times that; then 408"
    )
    max_message_bytes: Count = Field(
        1_000_000, description="one message: an event, an array of events, a query; longer ones are too_large"
    )
    max_message_events: Count = Field(
        10_000, description="events in one message, which is an array then; longer ones are refused (limit)"
    )
    max_request_events: Count = Field(
        100_000,
        description="events in a request, in arrays or one a line (blank ones too); more are refused (limit)",
    )
    max_batch_events: Count = Field(10_000, description="messages taken from the log in one step")
    max_ids_per_record: int = Field(
        1_000, ge=1, le=10_000, description="query ids in a record; more are split over several"
    )
    portion_records: Count = Field(
        2_000,
        description="border records of commands written in one commit; the rest follows, events in between",
    )
    max_page: Count = Field(10_000, description="items in one page of a list or of a topic")
    max_answer_bytes: Count = Field(
        16 * 1024 * 1024,
        description="an answer: a page ends with what takes it there, a dry run that comes to more is"
        " refused, and events with wait=true that caused more are a 202",
    )
    max_unsent_bytes: Count = Field(
        256 * 1024 * 1024,
        description="what clients have not taken yet of all answers; past it other requests are a 503",
    )
    max_streams: Count = Field(10_000_000, description="living streams of a partition; new ones are refused")
    max_queries: Count = Field(
        1_000_000, description="queries, quarantined ones among them; more are refused"
    )
    max_queries_tenant: Count = Field(
        1_000_000, description="queries of one tenant, counted in the same way; more are refused"
    )
    max_disjuncts: int = Field(
        1_000,
        ge=1,
        le=MOST_DISJUNCTS,
        description="boxes that one query may come to; what is registered stays, whatever this is later",
    )
    max_vertices: int = Field(
        10_000,
        ge=4,
        le=MOST_VERTICES,
        description="positions that the rings of all polygons of one condition may have (to judge one may"
        " take time by their square); what is registered stays, whatever this is later",
    )
    max_disjuncts_tenant: Count = Field(
        10_000_000, description="boxes that all queries of one tenant may come to; more are refused"
    )
    max_exports_tenant: Count = Field(
        4, description="exports of queries of one tenant under way at once; then 429"
    )
    max_live_clients: Count = Field(1_000, description="clients of /v1/live at once; then 503")
    max_live_clients_tenant: Count = Field(1_000, description="those of one tenant at once; then 429")
    max_live_records: Count = Field(
        100_000,
        description="records, whatever they are about, that may wait for a client of /v1/live; past it the"
        " client is cut",
    )
    max_live_bytes: Count = Field(
        64 * 1024 * 1024,
        description="bytes of those records; past it the client is cut. Clients of one tenant share its"
        " records, and all together hold no more than so much",
    )
    max_live_snapshot: Count = Field(
        100_000, description="streams that a client of /v1/live may begin with, if it names no query"
    )
    trace_events: int = Field(
        4_096,
        ge=0,
        le=1_000_000,
        description="newest events of a partition that are remembered for traces; 0: none",
    )
    safe_region_cuts: Count = Field(
        20_000,
        description="cuts of boxes for one safe region; what they are not enough for is left out",
    )
    index: str = Field(
        "auto",
        description="how queries are indexed: auto, or scan, bitmaps; of one source NAME=...; of those of its"
        " queries that constrain just these attributes NAME:X+Y=...; several by comma",
    )

    keys_file: str = Field(
        "", description='file of API keys, as "rangewatch keys new" makes it; without it none is asked for'
    )
    allow_open: bool = Field(
        False, description="serve without keys also beyond this machine and to the pages of other sites"
    )
    open_metrics: bool = Field(False, description="/metrics without a key")
    max_requests_per_s: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="requests of one name in a second; past it 429; 0: any"
    )
    max_requests_burst: Count = Field(100, description="how many of them may come at once")
    max_bytes_per_s: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="bytes of the bodies of one name in a second, on average; past it 429; 0: any",
    )

    tls_cert: str = Field(
        "", description="certificate chain (PEM): HTTPS instead of HTTP; read anew on change"
    )
    tls_key: str = Field("", description="its private key (PEM), if that is not in the same file")
    tls_key_password: SecretStr | None = Field(None, description="password of that key")
    tls_key_password_file: str = Field("", description="file with it")
    tls_client_ca: str = Field(
        "", description="clients must show a certificate that one of these (PEM) signed"
    )

    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="how Kafka is spoken to"
    )
    kafka_ssl_cafile: str = Field(
        "", description="certificates (PEM) that sign the brokers'; else the system's"
    )
    kafka_ssl_certfile: str = Field("", description="certificate (PEM) that this client shows")
    kafka_ssl_keyfile: str = Field("", description="its private key (PEM), if that is not in the same file")
    kafka_ssl_password: SecretStr | None = Field(None, description="password of that key")
    kafka_ssl_password_file: str = Field("", description="file with it")
    kafka_ssl_crlfile: str = Field("", description="revoked certificates (PEM)")
    kafka_ssl_ciphers: str = Field("", description="ciphers, as OpenSSL lists them; else the system's")
    kafka_ssl_check_hostname: bool = Field(True, description="a broker's certificate must name its host")
    kafka_sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER"] = (
        Field("", description="how this client says who it is, with SASL")
    )
    kafka_sasl_plain_username: str = Field("", description="user, for PLAIN and SCRAM")
    kafka_sasl_plain_password: SecretStr | None = Field(None, description="password of the user")
    kafka_sasl_plain_password_file: str = Field("", description="file with it")
    kafka_sasl_kerberos_name: str = Field("", description="Kerberos principal of the brokers, for GSSAPI")
    kafka_sasl_kerberos_service_name: str = Field("kafka", description="service in that principal")
    kafka_sasl_kerberos_domain_name: str = Field(
        "", description="host in that principal, if not the broker's"
    )
    kafka_sasl_oauth_token_file: str = Field(
        "",
        description="file with a bearer token, for OAUTHBEARER; read anew for each connection, or minute",
    )

    schema_registry_url: str = Field(
        "", description="schema registry, for sources whose messages name their schemas: http(s)://HOST..."
    )
    schema_registry_user: str = Field("", description="who this service is there")
    schema_registry_password: SecretStr | None = Field(None, description="password of the user")
    schema_registry_password_file: str = Field("", description="file with it; read anew after a refusal")
    schema_registry_token: SecretStr | None = Field(None, description="bearer token instead")
    schema_registry_token_file: str = Field("", description="file with it; read anew after a refusal")
    schema_registry_cafile: str = Field(
        "", description="certificates (PEM) that sign the registry's; else the system's"
    )
    schema_registry_certfile: str = Field("", description="certificate (PEM) that this client shows")
    schema_registry_keyfile: str = Field(
        "", description="its private key (PEM), if that is not in the same file"
    )
    schema_registry_key_password: SecretStr | None = Field(None, description="password of that key")
    schema_registry_key_password_file: str = Field("", description="file with it")
    schema_registry_timeout_s: Seconds = Field(
        10.0, description="how long it may take to be asked and to answer, to the last byte"
    )

    queue_size: Count = Field(1_000, description="requests that may wait for the owner thread; then 503")

    stop_timeout_s: Seconds = Field(
        30.0,
        description="how long a stop may take: half of it at most for requests under way, the rest to finish"
        " the step at hand",
    )

    @field_validator("log")
    @classmethod
    def _known_log(cls, value: str) -> str:
        kind, _, place = value.partition(":")
        has_secrets = kind == "kafka" and _OF_SECRETS & set(place)  # errors and logs show it
        if kind not in ("sqlite", "kafka") or not place or has_secrets:
            raise ValueError("must be sqlite:FILE or kafka:HOST:PORT,...")
        return value

    @field_validator("schema_registry_url")
    @classmethod
    def _known_registry(cls, value: str) -> str:
        """It stands in logs and answers, so it has no secrets."""
        if value and not re.fullmatch(r"https?://[^\s/@?#]+(/[^\s@?#]*)?", value):
            raise ValueError("must be http(s)://HOST:PORT/PATH without a user, ? or #")
        return value

    @field_validator("index")
    @classmethod
    def _known_index(cls, value: str) -> str:
        if value != "auto":
            # What is known to be right needs no kernels, and most commands need none either.
            from service.indexing import read_overrides

            read_overrides(value)
        return value

    @model_validator(mode="after")
    def _one_place_for_a_secret(self) -> Settings:
        for name in secret_names():
            if getattr(self, name) is not None and getattr(self, f"{name}_file"):
                raise ValueError(f"{name} and {name}_file are both given; keep one")
        return self

    @model_validator(mode="after")
    def _one_way_to_the_registry(self) -> Settings:
        token = self.schema_registry_token is not None or self.schema_registry_token_file
        if token and self.schema_registry_user:
            raise ValueError("schema_registry_token and schema_registry_user are both given; keep one")
        if self.schema_registry_keyfile and not self.schema_registry_certfile:
            raise ValueError("schema_registry_keyfile needs schema_registry_certfile")
        return self

    @model_validator(mode="after")
    def _a_body_among_all(self) -> Settings:
        for name in ("max_request_bytes", "max_bulk_bytes", "max_message_bytes"):
            if getattr(self, name) > self.max_bodies_bytes:
                raise ValueError(f"{name} is more than max_bodies_bytes, which is {self.max_bodies_bytes}")
        return self

    @model_validator(mode="after")
    def _a_certificate_for_tls(self) -> Settings:
        if (self.tls_key or self.tls_client_ca) and not self.tls_cert:
            raise ValueError("tls_key and tls_client_ca need tls_cert")
        return self

    @model_validator(mode="after")
    def _sasl_where_it_is_spoken(self) -> Settings:
        if self.kafka_security_protocol.startswith("SASL") != bool(self.kafka_sasl_mechanism):
            raise ValueError(
                "kafka_sasl_mechanism goes with a kafka_security_protocol of SASL_..., and only there"
            )
        has_password = self.kafka_sasl_plain_password is not None or self.kafka_sasl_plain_password_file
        if self.kafka_sasl_mechanism.startswith(("PLAIN", "SCRAM")) and not (
            self.kafka_sasl_plain_username and has_password
        ):
            raise ValueError(
                f"{self.kafka_sasl_mechanism} needs kafka_sasl_plain_username and kafka_sasl_plain_password"
            )
        if self.kafka_sasl_mechanism == "OAUTHBEARER" and not self.kafka_sasl_oauth_token_file:
            raise ValueError("OAUTHBEARER needs kafka_sasl_oauth_token_file")
        return self

    def secret(self, name: str) -> str | None:
        """A secret's text, from its setting or its file (whose last line break does not count); None where
        there is none. Raises SettingsError when the file cannot be read."""
        given: SecretStr | None = getattr(self, name)
        if given is not None:
            return given.get_secret_value()
        file: str = getattr(self, f"{name}_file")
        return read_secret(file, f"setting '{name}_file'") if file else None

    @property
    def log_kind(self) -> str:
        """``sqlite`` or ``kafka``."""
        return self.log.partition(":")[0]

    @property
    def log_place(self) -> str:
        """The file or the bootstrap servers."""
        return self.log.partition(":")[2]

    @property
    def most_queries(self) -> tuple[int, str]:
        """How many queries one tenant may have at the most, and the setting that says so."""
        return min((self.max_queries, "max_queries"), (self.max_queries_tenant, "max_queries_tenant"))

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings, env_settings, TomlConfigSettingsSource(settings_cls))


def secret_names() -> list[str]:
    """The settings that hold secrets; each has a second one with ``_file``."""
    return [name for name, field in Settings.model_fields.items() if field.annotation == SecretStr | None]


def read_secret(file: str, what: str) -> str:
    """The text of a file without its last line break. Raises SettingsError, which begins with ``what``."""
    try:
        return Path(file).read_text().rstrip("\r\n")
    except OSError as error:
        raise SettingsError(f"{what}: cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{what}: {file} is not UTF-8") from None


def load_settings(flags: Mapping[str, Any], config: Path | None = None) -> Settings:
    """Settings from ``flags`` (those given), the environment and a TOML file.

    Without ``config`` the file that ``RANGEWATCH_CONFIG`` names is read, if it names one. Raises
    SettingsError.
    """
    named = os.environ.get(f"{PREFIX}CONFIG")
    path = config or (Path(named) if named else None)

    class Configured(Settings):
        model_config = SettingsConfigDict(toml_file=path)

    try:
        if path is not None and not path.is_file():
            raise SettingsError(f"there is no settings file {path}")
        return Configured(**flags)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not TOML: {error}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is not UTF-8") from None
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from None
    except ValidationError as error:
        raise SettingsError("; ".join(_problem(one, path) for one in error.errors())) from None


def _problem(error: Any, path: Path | None) -> str:
    name = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"unknown setting {name!r}" + (f" in {path}" if path else "")
    told: str = error["msg"].removeprefix("Value error, ")
    if not name:  # of several settings together; the input would be all of them
        return told
    # Nobody knows where the password is in an address that is wrong.
    may_tell = name not in secret_names() and not _OF_SECRETS & set(str(error["input"]))
    given = f", not {error['input']!r}" if may_tell else ""
    return f"setting {name!r}: {told}{given}"
