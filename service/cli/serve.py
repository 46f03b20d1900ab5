"""``rangewatch serve``: the log, the runtime and the HTTP server in one process."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service import __version__
from service.cli.errors import FAILED, USAGE, CliError
from service.settings import PREFIX, Settings, SettingsError, load_settings

if TYPE_CHECKING:
    from uvicorn import Server

    from service.log.port import Log
    from service.runtime import Runtime

_logger = logging.getLogger("rangewatch")

_WATCH_S = 0.5

#: A dead letter quotes its event as JSON, where one byte may become six, and says more besides.
_LONGEST_ESCAPE = 8
#: What a record of ``max_ids_per_record`` ids and a state record come to at the most.
_WIDEST_RECORD_BYTES = 4 << 20


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "serve",
        help="run the service",
        description="Runs the service until it is interrupted. A setting comes from a flag, else from its"
        f" variable ({PREFIX}PORT for --port), else from the TOML file.",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings as TOML")
    for name, field in Settings.model_fields.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            default=argparse.SUPPRESS,
            metavar=str(field.default) if field.default != "" else "TEXT",
            help=field.description,
        )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    flags = {name: value for name, value in vars(args).items() if name in Settings.model_fields}
    try:
        settings = load_settings(flags, args.config)
    except SettingsError as error:
        raise CliError(str(error), USAGE) from None
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    # The client warns of slow requests and moving coordinators in normal running; what matters is raised.
    logging.getLogger("kafka").setLevel(logging.ERROR)
    return _serve(settings)


def _serve(settings: Settings) -> int:
    from uvicorn import Config, Server

    from service.api.app import create_app
    from service.metrics import Metrics
    from service.runtime import Runtime

    listening = _bind(settings)
    metrics = Metrics()
    runtime = Runtime(open_log(settings), settings, metrics)
    config = Config(
        create_app(runtime, settings, metrics),
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=max(1, round(settings.stop_timeout_s)),
    )
    server = Server(config)
    # After its own shutdown the server raises the signal again, for us: both end in the ``finally`` below.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    runtime.start()
    _logger.info(
        "rangewatch %s, log %s, listening on %s", __version__, _log_name(settings), _address(listening)
    )
    _watch(runtime, server)
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        stopped = _stop(runtime, settings.stop_timeout_s)
    return 0 if stopped else FAILED


def _stop(runtime: Runtime, timeout_s: float) -> bool:
    try:
        runtime.stop(timeout_s)
    except Exception as error:
        _logger.error("stopped: %s", error)
        return False
    _logger.info("stopped")
    return True


def _watch(runtime: Runtime, server: Server) -> None:
    """Ends the server when the worker dies: whoever started the process starts it again."""

    def watch() -> None:
        pause = threading.Event()
        while not server.should_exit:
            if runtime.failure is not None:
                server.should_exit = True
            pause.wait(_WATCH_S)

    threading.Thread(target=watch, name="watch", daemon=True).start()


def _bind(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        raise CliError(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}") from None
    return listening


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def open_log(settings: Settings) -> Log:
    """The log adapter that the settings name; not opened yet."""
    max_bytes = max(settings.max_message_bytes * _LONGEST_ESCAPE, _WIDEST_RECORD_BYTES)
    if settings.log_kind == "sqlite":
        from service.log.sqlite import SqliteLog

        return SqliteLog(settings.log_place, max_message_bytes=max_bytes)
    from service.log.kafka import KafkaLog
    from service.log.kafka_library import is_installed

    if not is_installed(settings.kafka_client):
        raise CliError(f"setting 'kafka_client': {settings.kafka_client} is not installed (the extra: fast)")
    worker = settings.worker or f"{socket.gethostname()}-{settings.port or os.getpid()}"
    return KafkaLog(
        settings.log_place,
        transactional_id=f"{settings.topic_prefix}{settings.group}-{worker}",
        group=settings.group,
        topic_prefix=settings.topic_prefix,
        partitions=settings.partitions,
        replication=settings.replication,
        max_message_bytes=max_bytes,
        client=settings.kafka_client,
    )


def _log_name(settings: Settings) -> str:
    if settings.log_kind == "sqlite":
        return settings.log
    from service.log.kafka_library import chosen

    return f"{settings.log} over {chosen(settings.kafka_client)}"
