"""Files of many queries on their way to the service, and what came of them.

A file is sent as it is read, in one request, and answered when all of it holds. Not for: what is in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from service.cli.client import problem_text
from service.cli.errors import CliError
from service.cli.files import unzipped
from service.cli.progress import sending
from service.cli.text import warn

TIMEOUT_S = 600.0
"""Large files take a while."""

_CHUNK = 64 * 1024
_SHOWN = 20


def upload(
    client: httpx.Client, method: str, url: str, file: Path, media: str, params: httpx.QueryParams
) -> dict[str, Any]:
    """The answer, or the problem that names ``failures``. Raises CliError."""
    with sending(file) as sent:

        def chunks() -> Iterator[bytes]:
            with file.open("rb") as raw, unzipped(file, raw) as stream:
                while chunk := stream.read(_CHUNK):
                    yield chunk
                    sent(raw.tell())

        response = client.request(
            method, url, params=params, content=chunks(), headers={"Content-Type": media}
        )
    answer: dict[str, Any] = response.json() if not response.is_server_error else {}
    if response.is_error and "failures" not in answer:
        raise CliError(problem_text(response))
    return answer


def tell_failures(failures: Sequence[tuple[str, Mapping[str, Any]]], count: int) -> None:
    """Says on stderr where something in a file was refused, and why; ``count``: of how many in all."""
    for where, failure in failures[:_SHOWN]:
        place = where + (f", {failure['field']}" if failure["field"] else "")
        warn(f"{place}: {failure['detail']} ({failure['reason']})")
    if count > _SHOWN:
        warn(f"and {count - _SHOWN} more")
