"""What a handler works with: the runtime and the settings of the application that it belongs to."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, TypeVar
from weakref import WeakValueDictionary

from fastapi import Depends, FastAPI, Request

from service.api.own_records import OwnRecords
from service.api.problems import NOT_RUNNING, Unready
from service.engine.commands import Command, Outcome
from service.engine.engine import Engine
from service.keys import NOBODY, Principal
from service.log.port import Message
from service.metrics import Metrics
from service.model import Reason, Refusal, Source
from service.runtime import Receipt, Runtime
from service.settings import Settings
from service.tenants import key_of

T = TypeVar("T")

MAX_ACTOR = 200
#: How many requests look at all queries at once; there are more threads than that on any machine.
LOOKS = 4


class Locks:
    """A lock for each name that somebody holds or waits for."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())


@dataclass(frozen=True, slots=True)
class Service:
    """``changing``: held by key of the collection while a request changes it. ``exports``: how many of each
    tenant are under way. ``looks``: held while a request looks at all queries. ``is_still_let_in``: whether
    the request would still be let in, as the same principal's."""

    runtime: Runtime
    settings: Settings
    metrics: Metrics
    principal: Principal = NOBODY
    actor: str | None = None
    is_still_let_in: Callable[[], bool] = lambda: True
    changing: Locks = field(default_factory=Locks)
    exports: Counter[str] = field(default_factory=Counter)
    looks: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LOOKS))
    own_records: OwnRecords = field(default_factory=OwnRecords)

    @property
    def tenant(self) -> str:
        """Whose queries the request is about: whatever it reads or changes is that tenant's, or shared."""
        return self.principal.tenant

    def key(self, id: str) -> str:
        """The key of what the tenant calls so: a query or a collection."""
        return key_of(self.principal.tenant, id)

    async def ask(self, question: Callable[[Engine], T]) -> T:
        """The answer to a question, which runs between two batches: it must be quick."""
        return await _result(self.runtime.ask(question))

    async def command(self, command: Command) -> Outcome:
        """Makes one change; returns when it holds. Raises its Refusal."""
        (answer,) = await self.commands([command], atomic=True)
        if isinstance(answer, Refusal):
            raise answer
        assert answer is not None
        return answer

    async def commands(
        self, commands: Sequence[Command], *, atomic: bool
    ) -> Sequence[Outcome | Refusal | None]:
        return await _result(self.runtime.command(commands, atomic=atomic, by=self.actor))

    async def picture(self, question: Callable[[Engine], T]) -> tuple[int, T]:
        """As ``ask``, with the number of the first commit that the answer does not have."""
        return await _result(self.runtime.picture(question))

    async def history(self, start: int, limit: int) -> tuple[list[tuple[int, Any]], int]:
        """A stretch of the command log, as long as an answer may be, and the offset to go on from."""
        return await _result(self.runtime.history(start, limit, self.settings.max_answer_bytes))

    async def send(self, source: str, messages: Sequence[Message], *, wait: bool) -> Receipt:
        """Puts messages on a source's topic; ``wait``: returns when they are processed and committed."""
        send = partial(self.runtime.send, source, messages, wait=wait, tenant=self.tenant)
        return await _result(await asyncio.to_thread(send))

    async def remove_stream(self, source: str, stream_id: str) -> bool | None:
        return await _result(self.runtime.remove_stream(source, stream_id))

    def check_limit(self, limit: int) -> None:
        """Raises Refusal where somebody asks for more at once than ``max_page`` items."""
        if limit > self.settings.max_page:
            detail = f"is more than max_page, {self.settings.max_page}; ask for less and go on with after"
            raise Refusal(Reason.LIMIT, "limit", detail)

    async def source(self, name: str) -> Source:
        """A source by name. Raises Refusal (unknown_source)."""
        source = await self.ask(lambda engine: engine.catalog.sources.get(name))
        if source is None:
            raise unknown_source(name)
        return source


async def _result(future: Future[T]) -> T:
    """What a future of the runtime holds. A request that is given up leaves the future to its owner."""
    try:
        return await asyncio.shield(asyncio.wrap_future(future))
    finally:
        del future  # what it raises holds this call, and with it all that the request holds


def unknown_source(name: str) -> Refusal:
    return Refusal(
        Reason.UNKNOWN_SOURCE, "source", f"there is no source {name!r}; PUT /v1/sources/{{name}} creates one"
    )


def attach(app: FastAPI, service: Service) -> None:
    app.state.service = service


def _service(request: Request) -> Service:
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


def _live_service(request: Request) -> Service:
    service = _service(request)
    if service.runtime.failure is not None:
        raise Unready(NOT_RUNNING)
    if not service.runtime.ready:
        raise Unready("the service is catching up; try again")
    principal: Principal = request.state.principal
    return replace(
        service,
        principal=principal,
        actor=principal.name or _claimed(request),
        is_still_let_in=request.state.is_still_let_in,
    )


def _claimed(request: Request) -> str | None:
    """Who asks, by what a client without a key says of itself. Raises Refusal: limit."""
    actor = request.headers.get("x-actor")
    if actor is not None and len(actor) > MAX_ACTOR:
        raise Refusal(Reason.LIMIT, "X-Actor", f"has more than {MAX_ACTOR} characters; shorten it")
    return actor


#: The service in whatever state it is; for health and metrics.
AnyService = Annotated[Service, Depends(_service)]
#: The service, or a 503 where it has not caught up.
LiveService = Annotated[Service, Depends(_live_service)]
