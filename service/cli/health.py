"""``rangewatch health``: whether the service with these settings is alive, asked from its own machine, as the
check of a container does."""

from __future__ import annotations

import argparse
import ssl
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

from service.cli.errors import FAILED, UNREACHABLE, USAGE, CliError
from service.settings import PREFIX, Settings, SettingsError, load_settings

_PATH = "/healthz"
_TIMEOUT_S = 2.0


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "health",
        help="ask whether the service on this machine is alive",
        description="Asks the service that was started with the same settings on this machine: exit code 0 if"
        f' it is alive. Flags of "serve" are not known here: use variables ({PREFIX}PORT) or the file that'
        f" {PREFIX}CONFIG names. Where clients must show a certificate (tls_client_ca), it is alive if it"
        " shows its own.",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings as TOML")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        settings = load_settings({}, args.config)
    except SettingsError as error:
        raise CliError(str(error), USAGE) from None
    connection = _connection(settings)
    try:
        connection.connect()
        if settings.tls_client_ca:
            return 0
        connection.request("GET", _PATH)
        status = connection.getresponse().status
    except (OSError, HTTPException) as error:
        text = f"nothing answers at {settings.host}:{settings.port} ({error or type(error).__name__})"
        raise CliError(text, UNREACHABLE) from None
    finally:
        connection.close()
    if status != 200:
        raise CliError(f"{_PATH} answers {status}", FAILED)
    return 0


def _connection(settings: Settings) -> HTTPConnection:
    if not settings.tls_cert:
        return HTTPConnection(settings.host, settings.port, timeout=_TIMEOUT_S)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # the certificate is for the names that clients know
    context.verify_mode = ssl.CERT_NONE
    return HTTPSConnection(settings.host, settings.port, timeout=_TIMEOUT_S, context=context)
