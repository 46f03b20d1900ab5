"""Schemas of a schema registry, asked for by id over HTTP: Confluent's interface, which others offer as well.

Idea: nobody who handles events waits for a network. ``look`` gives what is known and has the rest fetched by
a thread; whoever asked is told when there is news, and asks again. What an id means never changes, so an
answer is kept; that there is none is believed for a while only, since a replica of a registry may be behind.

A request has one deadline, from the name's look-up to the last byte, however slowly it goes on: hence the
event loop of the thread, which can be left at any await.

An id is unknown only if the registry says so in so many words (``error_code`` 40403). Whatever else it
answers, or not, is ``trouble``: it is asked again, and the events wait.

Not for: understanding schemas (``decode_binary``). Thread-safe.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from service.rows import Registered
from service.settings import Settings, SettingsError

if TYPE_CHECKING:
    import httpx

logger = logging.getLogger("rangewatch")

#: How long "there is no such schema" is believed.
UNKNOWN_S = 30.0
#: Between two tries for an id, at first and at most.
RETRY_S = 0.5
MAX_RETRY_S = 10.0
#: An id that nobody has asked for so long is not tried any more.
FORGOTTEN_S = 60.0
MAX_ANSWER_BYTES = 4 << 20
MAX_KEPT = 100_000
_NO_SCHEMA = 40403
#: Registries in Java cannot read a larger id and say that the address is not there (``error_code`` 404).
_LARGEST_ID = 2**31 - 1
_CLOSE_S = 1.0
_ACCEPTED = "application/vnd.schemaregistry.v1+json, application/json"

V = TypeVar("V")


class SchemasUnavailable(Exception):
    """Schemas cannot be had now. The text says why, and has no secret in it."""


class Schemas(Protocol):
    """What the worker asks of a registry."""

    @property
    def trouble(self) -> str | None:
        """Why the last try to get a schema failed; None where it did not."""

    def look(self, ids: Iterable[int]) -> dict[int, Registered | None]:
        """What is known of these ids, None for one that the registry does not know; the others are asked for,
        and whoever ``when_news`` names is called when something has come in. Does not wait."""

    def wait(self, ids: Iterable[int], timeout_s: float) -> dict[int, Registered | None]:
        """As ``look``, with all of them. Raises SchemasUnavailable where a try fails or takes too long."""

    def when_news(self, call: Callable[[], None]) -> None:
        """Who is called, by another thread, when ``look`` may give more than before, or trouble begins."""


class NoRegistry:
    """Where no registry is set."""

    trouble: str | None = "schema_registry_url is not set"

    def look(self, ids: Iterable[int]) -> dict[int, Registered | None]:
        return {}

    def when_news(self, call: Callable[[], None]) -> None:
        pass

    def wait(self, ids: Iterable[int], timeout_s: float) -> dict[int, Registered | None]:
        raise SchemasUnavailable(self.trouble)

    def close(self) -> None:
        pass


@dataclass(slots=True)
class _Asked:
    """An id that is asked for: when last, when it may be tried, how long to wait after the next failure; the
    number of its last failure, counted over all (0: none), and what that was."""

    at_s: float = 0.0
    not_before_s: float = 0.0
    pause_s: float = RETRY_S
    failure: int = 0
    trouble: str = ""


class Registry:
    """See the module. Raises SettingsError where its secrets or certificates cannot be read."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._url = settings.schema_registry_url.rstrip("/")
        self._timeout_s = settings.schema_registry_timeout_s
        self._changed = threading.Condition()
        self._known: dict[int, Registered] = {}
        self._unknown_until: dict[int, float] = {}
        self._asked: dict[int, _Asked] = {}
        self._failures = 0
        self._closing = False
        self._news: Callable[[], None] = lambda: None
        self._thread: threading.Thread | None = None
        self._client: httpx.AsyncClient | None = self._connect()

    def close(self) -> None:
        """Ends the thread with its current request, for which nobody waits long."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def when_news(self, call: Callable[[], None]) -> None:
        self._news = call

    @property
    def trouble(self) -> str | None:
        with self._changed:
            return self._trouble()

    def look(self, ids: Iterable[int]) -> dict[int, Registered | None]:
        with self._changed:
            return self._look(ids)

    def wait(self, ids: Iterable[int], timeout_s: float) -> dict[int, Registered | None]:
        wanted = set(ids)
        with self._changed:
            failures = self._failures
            found = self._look(wanted)
            deadline = time.monotonic() + timeout_s
            while len(found) < len(wanted):
                for asked in (self._asked[id] for id in wanted if id in self._asked):
                    if asked.failure > failures:
                        raise SchemasUnavailable(asked.trouble)
                left_s = deadline - time.monotonic()
                if left_s <= 0 or not self._changed.wait(left_s):
                    raise SchemasUnavailable(
                        self._trouble() or f"{self._url} takes longer than {timeout_s:g} s"
                    )
                found = self._look(wanted)
            return found

    def _trouble(self) -> str | None:
        last = max(self._asked.values(), key=lambda asked: asked.failure, default=None)
        return last.trouble if last is not None and last.failure else None

    def _look(self, ids: Iterable[int]) -> dict[int, Registered | None]:
        now = time.monotonic()
        found: dict[int, Registered | None] = {}
        for id in ids:
            if id in self._known:
                found[id] = self._known[id]
            elif self._unknown_until.get(id, now) > now:
                found[id] = None
            else:
                self._asked.setdefault(id, _Asked()).at_s = now
        if self._asked:
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="schemas", daemon=True)
                self._thread.start()
        return found

    # ---- the thread

    def _run(self) -> None:
        with asyncio.Runner() as loop:
            while (id := self._next()) is not None:
                try:
                    schema = loop.run(self._fetch(id))
                except SchemasUnavailable as away:
                    loop.run(self._disconnect())  # the next one reads the files of its secrets anew
                    self._fail(id, str(away))
                    continue
                with self._changed:
                    self._asked.pop(id, None)
                    if schema is None:
                        _keep(self._unknown_until, id, time.monotonic() + UNKNOWN_S)
                    else:
                        _keep(self._known, id, schema)
                    self._changed.notify_all()
                self._news()
            loop.run(self._disconnect())

    def _next(self) -> int | None:
        """Waits for an id whose turn has come; None: it is to end. Those that nobody asks for any more, which
        would be asked for all the time, are forgotten."""
        with self._changed:
            while not self._closing:
                now = time.monotonic()
                for id in [id for id, asked in self._asked.items() if now > asked.at_s + FORGOTTEN_S]:
                    del self._asked[id]
                first = min(self._asked, key=lambda id: self._asked[id].not_before_s, default=None)
                left_s = None if first is None else self._asked[first].not_before_s - now
                if left_s is not None and left_s <= 0:
                    return first
                self._changed.wait(left_s)
            return None

    def _fail(self, id: int, trouble: str) -> None:
        """The next try for this id is later; those for others are not."""
        logger.warning("%s; events that need schemas wait", trouble)
        with self._changed:
            self._failures += 1
            asked = self._asked.get(id)
            if asked is not None:
                asked.failure, asked.trouble = self._failures, trouble
                asked.not_before_s = time.monotonic() + asked.pause_s
                asked.pause_s = min(2 * asked.pause_s, MAX_RETRY_S)
            self._changed.notify_all()
        self._news()

    # ---- one request

    def _connect(self) -> httpx.AsyncClient:
        """A client. What it says of itself comes from the settings, and nothing from the environment."""
        # Imported here: a service without a registry does without their start-up time.
        import httpx

        from service.tls import registry_context

        settings = self._settings
        headers = {"Accept": _ACCEPTED, "Accept-Encoding": "identity"}
        token = settings.secret("schema_registry_token")
        auth = None
        if token is not None:
            if not (token.isascii() and token.isprintable()):  # the client's complaint would quote it
                raise SettingsError("schema_registry_token has characters that no header can have")
            headers["Authorization"] = f"Bearer {token}"
        elif settings.schema_registry_user:
            password = settings.secret("schema_registry_password") or ""
            auth = httpx.BasicAuth(settings.schema_registry_user, password)
        verify = registry_context(settings) if self._url.startswith("https:") else True
        # Its own timeouts would be of single reads: see ``_fetch``.
        return httpx.AsyncClient(verify=verify, auth=auth, headers=headers, timeout=None, trust_env=False)

    async def _disconnect(self) -> None:
        if self._client is not None:
            await self._client.aclose()
        self._client = None

    async def _fetch(self, id: int) -> Registered | None:
        """One schema, None if the registry has none. Raises SchemasUnavailable."""
        url = f"{self._url}/schemas/ids/{id}"
        try:
            if self._client is None:
                self._client = self._connect()
            async with asyncio.timeout(self._timeout_s), self._client.stream("GET", url) as answer:
                status, body = answer.status_code, await _body(answer, url)
        except SchemasUnavailable:
            raise
        except TimeoutError:
            raise SchemasUnavailable(
                f"the schema registry takes longer than {self._timeout_s:g} s ({url})"
            ) from None
        except Exception as error:  # the library's, the socket's, those of TLS and of the settings' files
            raise SchemasUnavailable(
                f"the schema registry cannot be asked ({url}: {type(error).__name__}: {error})"
            ) from None
        try:
            told = json.loads(body)
        except (ValueError, RecursionError):
            told = None
        if not isinstance(told, dict):
            told = {}
        if status == 404 and (told.get("error_code") == _NO_SCHEMA or id > _LARGEST_ID):
            return None
        if status != 200:
            raise SchemasUnavailable(f"the schema registry answers {status} ({url}){_hint(status)}")
        return _registered(told, url)


async def _body(answer: httpx.Response, url: str) -> bytes:
    """The body, if it is not too long."""
    body = bytearray()
    async for chunk in answer.aiter_raw():
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise SchemasUnavailable(
                f"the schema registry answers with more than {MAX_ANSWER_BYTES} bytes ({url})"
            )
    return bytes(body)


def _registered(told: dict[str, Any], url: str) -> Registered:
    text, kind = told.get("schema"), told.get("schemaType") or "AVRO"
    if not isinstance(text, str) or not isinstance(kind, str):
        raise SchemasUnavailable(f"the schema registry answers with something that is no schema ({url})")
    return Registered(text, kind, bool(told.get("references")))


def _hint(status: int) -> str:
    if status in (401, 403):
        return "; look at schema_registry_user, schema_registry_password and schema_registry_token"
    return "; is schema_registry_url right?" if status == 404 else ""


def _keep(kept: dict[int, V], id: int, value: V) -> None:
    """Puts it there, and the oldest out where there are too many."""
    kept.pop(id, None)
    kept[id] = value
    if len(kept) > MAX_KEPT:
        del kept[next(iter(kept))]
