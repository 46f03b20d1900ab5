"""``rangewatch serve``: the log, the runtime and the HTTP server in one process."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import threading
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service import __version__
from service.cli.errors import FAILED, USAGE, CliError
from service.settings import PREFIX, Settings, SettingsError, load_settings, secret_names

if TYPE_CHECKING:
    from uvicorn import Server

    from service.cli.connections import Listening
    from service.log.port import Log
    from service.runtime import Runtime
    from service.tls import Certificate

_logger = logging.getLogger("rangewatch")

_WATCH_S = 0.5

#: What a library imports when it is first used, by the worker: there might be no file left for it then.
_IMPORTED_LATE = ("numpy.ma",)

#: A dead letter quotes its event as JSON, where one byte may become six, and says more besides.
_LONGEST_ESCAPE = 8
#: What a record of ``max_ids_per_record`` ids and a state record come to at the most.
_WIDEST_RECORD_BYTES = 4 << 20


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "serve",
        help="run the service",
        description="Runs the service until it is interrupted. A setting comes from a flag, else from its"
        f" variable ({PREFIX}PORT for --port), else from the TOML file. Secrets have no flags.",
        # An abbreviation could take a secret for the file that holds one.
        allow_abbrev=False,
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings as TOML")
    for name, field in Settings.model_fields.items():
        if name in secret_names():
            continue
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
    logging.getLogger("httpx").setLevel(logging.WARNING)  # else a line for each schema that is asked for
    # The client warns of slow requests and moving coordinators in normal running; what matters is raised.
    logging.getLogger("kafka").setLevel(logging.ERROR)
    # What ends a producer is raised, and that another worker has taken the pen is no trouble at all.
    logging.getLogger("kafka.producer.transaction_manager").setLevel(logging.CRITICAL)
    try:
        return _serve(settings)
    except SettingsError as error:
        raise CliError(str(error), USAGE) from None


def _serve(settings: Settings) -> int:
    from service.api.access import is_loopback
    from service.api.app import create_app
    from service.cli.connections import connections_of_process
    from service.cli.http_server import HttpServer
    from service.keys import KeysError
    from service.metrics import Metrics
    from service.runtime import Runtime
    from service.tls import Certificate

    if not (settings.keys_file or settings.allow_open or is_loopback(settings.host)):
        raise CliError(
            f"without keys the service is for this machine only, not for {settings.host}: name a keys_file"
            ' ("rangewatch keys new" makes one), or set allow_open if something else guards it',
            USAGE,
        )
    certificate = Certificate(settings) if settings.tls_cert else None
    log = open_log(settings)
    listening = _bind(settings, connections_of_process(settings.max_connections))
    for name in _IMPORTED_LATE:
        import_module(name)
    metrics = Metrics()
    runtime = Runtime(log, settings, metrics)
    try:
        app = create_app(runtime, settings, metrics)
    except KeysError as error:
        raise CliError(str(error), USAGE) from None
    tls = certificate.context if certificate else None
    server = HttpServer(app, runtime.hub, app.state.unsent, stop_timeout_s=settings.stop_timeout_s, tls=tls)
    # After its own shutdown the server raises the signal again, for us: both end in the ``finally`` below.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    runtime.start()
    address = _address(listening, "https" if certificate else "http")
    _logger.info("rangewatch %s, log %s, listening on %s", __version__, _log_name(settings), address)
    _watch(runtime, server, certificate)
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        stopped = _stop(runtime, server.left_s)
    return 0 if stopped else FAILED


def _stop(runtime: Runtime, timeout_s: float) -> bool:
    try:
        runtime.stop(timeout_s)
    except Exception as error:
        _logger.error("stopped: %s", error)
        return False
    _logger.info("stopped")
    return True


def _watch(runtime: Runtime, server: Server, certificate: Certificate | None) -> None:
    """Ends the server when the worker dies: whoever started the process starts it again. Takes up a new
    certificate."""

    def watch() -> None:
        pause = threading.Event()
        while not server.should_exit:
            if runtime.failure is not None:
                server.should_exit = True
            if certificate is not None:
                renew(certificate)
            pause.wait(_WATCH_S)

    threading.Thread(target=watch, name="watch", daemon=True).start()


def renew(certificate: Certificate) -> None:
    """Raises nothing: nobody would look at the worker and the files any more."""
    try:
        if certificate.refresh():
            _logger.info("a new certificate is in use")
    except SettingsError as error:
        _logger.error("the certificate stays as it was: %s", error)
    except Exception:
        _logger.exception("the certificate stays as it was")


def _bind(settings: Settings, most: int) -> Listening:
    from service.cli.connections import Listening

    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = Listening(family, most, answers_in_clear=not settings.tls_cert)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        raise CliError(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}") from None
    return listening


def _address(listening: socket.socket, scheme: str) -> str:
    host, port = listening.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def open_log(settings: Settings) -> Log:
    """The log adapter that the settings name; not opened yet. Raises SettingsError."""
    max_bytes = max(settings.max_message_bytes * _LONGEST_ESCAPE, _WIDEST_RECORD_BYTES)
    if settings.log_kind == "sqlite":
        from service.log.sqlite import SqliteLog
        from service.wire import owner

        keep_ms = int(settings.keep_records_s * 1000) or None
        return SqliteLog(settings.log_place, max_message_bytes=max_bytes, keep_ms=keep_ms, owner_of=owner)
    from service.log.kafka import KafkaLog
    from service.log.kafka_library import is_installed
    from service.log.kafka_security import client_of, client_options

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
        client=client_of(settings),
        client_options=partial(client_options, settings),
        timeout_s=settings.log_timeout_s,
        session_timeout_s=settings.session_timeout_s,
    )


def _log_name(settings: Settings) -> str:
    if settings.log_kind == "sqlite":
        return settings.log
    from service.log.kafka_security import client_of

    return f"{settings.log} over {client_of(settings)}"
