"""Settings: every choice and every limit of the service, in one place.

A value comes from the first of these that has it: a flag, a ``RANGEWATCH_*`` variable, the TOML file, the
default below. The names are the same in all three (``--max-streams``, ``RANGEWATCH_MAX_STREAMS``,
``max_streams = ...``). An unknown key in the file is an error that names it.

Not for: what belongs to one source or one query (policies, tags); those are data, not settings.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

PREFIX = "RANGEWATCH_"

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
        "auto",
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
        description="name of this worker in the group; a second one under the same name stops the first"
        " (without it: host and port)",
    )
    partitions: Count = Field(4, description="partitions of the event topics created on Kafka")
    replication: Count = Field(1, description="replicas of the topics that the service creates on Kafka")

    max_request_bytes: Count = Field(32 * 1024 * 1024, description="body of a request, bulk imports apart")
    max_bulk_bytes: Count = Field(512 * 1024 * 1024, description="body of a bulk import")
    max_message_bytes: Count = Field(
        1_000_000, description="one message: an event, an array of events, a query; longer ones are too_large"
    )
    max_batch_events: Count = Field(10_000, description="messages taken from the log in one step")
    max_ids_per_record: int = Field(
        1_000, ge=1, le=10_000, description="query ids in a record; more are split over several"
    )
    max_page: Count = Field(10_000, description="items in one page of a list or of a topic")
    max_streams: Count = Field(10_000_000, description="living streams of a partition; new ones are refused")
    max_queries: Count = Field(1_000_000, description="registered queries; more are refused")
    max_disjuncts: Count = Field(1_000, description="boxes that one query may come to")
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

    queue_size: Count = Field(1_000, description="requests that may wait for the owner thread; then 503")

    stop_timeout_s: Seconds = Field(30.0, description="time to finish the step at hand when stopping")

    @field_validator("log")
    @classmethod
    def _known_log(cls, value: str) -> str:
        kind, _, place = value.partition(":")
        if kind not in ("sqlite", "kafka") or not place:
            raise ValueError("must be sqlite:FILE or kafka:HOST:PORT,...")
        return value

    @field_validator("index")
    @classmethod
    def _known_index(cls, value: str) -> str:
        if value != "auto":
            # What is known to be right needs no kernels, and most commands need none either.
            from service.indexing import read_overrides

            read_overrides(value)
        return value

    @property
    def log_kind(self) -> str:
        """``sqlite`` or ``kafka``."""
        return self.log.partition(":")[0]

    @property
    def log_place(self) -> str:
        """The file or the bootstrap servers."""
        return self.log.partition(":")[2]

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
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from None
    except ValidationError as error:
        raise SettingsError("; ".join(_problem(one, path) for one in error.errors())) from None


def _problem(error: Any, path: Path | None) -> str:
    name = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"unknown setting {name!r}" + (f" in {path}" if path else "")
    return f"setting {name!r}: {error['msg'].removeprefix('Value error, ')}, not {error['input']!r}"
