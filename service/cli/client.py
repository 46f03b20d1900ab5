"""The service as the commands see it: HTTP with friendly errors, and patience where it asks for some."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from service.cli.errors import FAILED, UNREACHABLE, CliError

DEFAULT_URL = "http://127.0.0.1:8080"

#: How long a request is repeated while the service says that it is not ready or too busy.
PATIENCE_S = 60.0


def add_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url",
        default=os.environ.get("RANGEWATCH_URL", DEFAULT_URL),
        help="the service (RANGEWATCH_URL; %(default)s)",
    )


@contextmanager
def connected(url: str, *, timeout_s: float = 60.0) -> Iterator[httpx.Client]:
    """A client of the service; what goes wrong with the connection becomes a CliError."""
    try:
        with httpx.Client(base_url=url, timeout=httpx.Timeout(timeout_s, connect=5.0)) as client:
            yield client
    except httpx.ConnectError:
        text = f'nothing answers at {url}; start the service with "rangewatch serve" or give another --url'
        raise CliError(text, UNREACHABLE) from None
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        raise CliError(f"{url!r} is no http:// address", UNREACHABLE) from None
    except httpx.HTTPError as error:
        raise CliError(
            f"the connection to {url} broke: {error or type(error).__name__}", UNREACHABLE
        ) from None


def send(client: httpx.Client, method: str, path: str, **options: Any) -> httpx.Response:
    """One request, repeated while the answer is 503. Raises CliError with the problem's text on an error."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        response = client.request(method, path, **options)
        if response.status_code != 503 or time.monotonic() > deadline:
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
        return f"{field}{problem['detail']} ({problem['reason']})"
    except (ValueError, KeyError, TypeError):
        return f"{response.request.url} answered {response.status_code}"
