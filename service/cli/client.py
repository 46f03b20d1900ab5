"""The service as the commands see it: HTTP with friendly errors, and patience where it asks for some."""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from service.cli.errors import FAILED, UNREACHABLE, USAGE, CliError
from service.cli.text import escaped
from service.settings import SettingsError, read_secret

KEY_VARIABLE = "RANGEWATCH_API_KEY"
DEFAULT_URL = "http://127.0.0.1:8080"

#: How long a request is repeated while the service says that it is not ready, too busy, or asked too often.
PATIENCE_S = 60.0


def add_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url",
        default=os.environ.get("RANGEWATCH_URL", DEFAULT_URL),
        help=f"the service (RANGEWATCH_URL; %(default)s); its key comes from {KEY_VARIABLE}, or from the file"
        f" that {KEY_VARIABLE}_FILE names",
    )


def key_headers() -> dict[str, str]:
    """The header with the key of the environment, if there is one: a flag would show in lists of processes.

    Raises CliError, which does not quote the key."""
    text, name = os.environ.get(KEY_VARIABLE, ""), KEY_VARIABLE
    if not text and (file := os.environ.get(f"{KEY_VARIABLE}_FILE")):
        name = f"{KEY_VARIABLE}_FILE"
        try:
            text = read_secret(file, name)
        except SettingsError as error:
            raise CliError(str(error), USAGE) from None
    if not text:
        return {}
    if not re.fullmatch(r"[\x21-\x7e]+", text.strip()):
        raise CliError(f"{name} holds no key; a key is one word", USAGE)
    return {"Authorization": f"Bearer {text.strip()}"}


@contextmanager
def connected(url: str, *, timeout_s: float = 60.0) -> Iterator[httpx.Client]:
    """A client of the service; what goes wrong with the connection becomes a CliError."""
    try:
        timeout = httpx.Timeout(timeout_s, connect=5.0)
        with httpx.Client(base_url=url, timeout=timeout, headers=key_headers()) as client:
            yield client
    except httpx.ConnectError as error:
        if "[SSL" in str(error):
            text = f"no TLS with {url} ({error}); SSL_CERT_FILE names the certificates to trust"
            raise CliError(text, UNREACHABLE) from None
        text = f'nothing answers at {url}; start the service with "rangewatch serve" or give another --url'
        raise CliError(text, UNREACHABLE) from None
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        raise CliError(f"{url!r} is no http:// or https:// address", UNREACHABLE) from None
    except httpx.HTTPError as error:
        raise CliError(
            f"the connection to {url} broke: {error or type(error).__name__}", UNREACHABLE
        ) from None


def send(client: httpx.Client, method: str, path: str, **options: Any) -> httpx.Response:
    """One request, repeated while the answer is "later". Raises CliError with the problem's text on an
    error."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        response = client.request(method, path, **options)
        # A 429 without a time is a quota that time does not lift.
        again = response.status_code == 503 or "retry-after" in response.headers
        if not again or time.monotonic() > deadline:
            return checked(response)
        time.sleep(float(response.headers.get("retry-after", 1)))


def checked(response: httpx.Response) -> httpx.Response:
    """The response, if it is no error. Raises CliError."""
    if response.is_error:
        raise CliError(problem_text(response), FAILED)
    return response


def problem_text(response: httpx.Response) -> str:
    """What an error answer says, in one line."""
    try:
        problem = response.json()
        field = f"{problem['field']}: " if problem["field"] else ""
        return escaped(f"{field}{problem['detail']} ({problem['reason']})")
    except (ValueError, KeyError, TypeError):
        return f"{response.request.url} answered {response.status_code}"
