"""Who may ask for what: the role that each operation needs, and the guard in front of all of them.

Idea: one table says what every operation needs, one guard holds every request to it before its body is
looked at. An operation that the table does not know keeps the application from being made, so a new route
cannot be open by oversight.

With a file of keys a request shows one (``Authorization: Bearer ...``): no key or a bad one is a 401, more
requests or bytes than the name may send, whatever for, is a 429, a role that does not reach is a 403. Without
keys whoever reaches the service may do everything, so only this machine reaches it (``cli.serve`` sees to
that), and the guard keeps off the pages of other sites: a browser on this machine would carry their requests
here.

What all tenants share is in the hands of the default tenant (``OF_ALL``): its keys are the operators'. All
else a request sees and changes is its own tenant's, whatever the role of its key.

Not for: what belongs to which tenant. ``Principal.tenant`` says whose the request is; the handlers ask for
that tenant's (``context.Service``).
"""

from __future__ import annotations

import ipaddress
import math
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from service.api.bodies import Body, body_of
from service.api.problems import ProblemError, documented
from service.keys import KeyRefused, KeyRing, Principal, Role
from service.log.topics import DEAD_LETTER
from service.metrics import Metrics
from service.rates import Rates
from service.settings import Settings
from service.tenants import DEFAULT_TENANT, key_of

_METRICS = ("GET", "/metrics")

#: What each operation needs. None: nothing, not even a key. Sources are shared by all and name topics of the
#: cluster, so they are an administrator's. So is the one topic with events of everybody, the dead letters.
ROLES: Mapping[tuple[str, str], Role | None] = {
    ("GET", "/healthz"): None,
    ("GET", "/readyz"): None,
    _METRICS: Role.READ,
    ("PUT", "/v1/sources/{name}"): Role.ADMIN,
    ("GET", "/v1/sources/{name}"): Role.READ,
    ("GET", "/v1/sources/{name}/index"): Role.READ,
    ("GET", "/v1/sources"): Role.READ,
    ("POST", "/v1/queries:bulk"): Role.WRITE,
    ("GET", "/v1/queries:export"): Role.READ,
    ("GET", "/v1/queries:duplicates"): Role.READ,
    ("GET", "/v1/queries:unmatched"): Role.READ,
    ("GET", "/v1/queries"): Role.READ,
    ("POST", "/v1/queries"): Role.WRITE,
    ("PUT", "/v1/queries/{id}"): Role.WRITE,
    ("PATCH", "/v1/queries/{id}"): Role.WRITE,
    ("DELETE", "/v1/queries/{id}"): Role.WRITE,
    ("GET", "/v1/queries/{id}"): Role.READ,
    ("GET", "/v1/queries/{id}/streams"): Role.READ,
    ("GET", "/v1/queries/{id}/aggregates"): Role.READ,
    ("PUT", "/v1/collections/{name}"): Role.WRITE,
    ("GET", "/v1/collections/{name}"): Role.READ,
    ("GET", "/v1/collections"): Role.READ,
    ("DELETE", "/v1/collections/{name}"): Role.WRITE,
    ("POST", "/v1/validate"): Role.READ,
    ("POST", "/v1/explain"): Role.READ,
    ("POST", "/v1/match"): Role.READ,
    ("POST", "/v1/events"): Role.WRITE,
    ("GET", "/v1/streams/{id}/trace"): Role.READ,
    ("GET", "/v1/streams/{id}/safe-region"): Role.READ,
    ("GET", "/v1/streams/{id}"): Role.READ,
    ("DELETE", "/v1/streams/{id}"): Role.WRITE,
    ("GET", "/v1/live"): Role.READ,
    ("GET", "/v1/history"): Role.READ,
    ("GET", "/v1/topics/{topic}"): Role.READ,
    ("GET", "/v1/schemas/{name}"): Role.READ,
}

#: What acts on, or tells of, what all tenants share: for keys of the default tenant only. A source names a
#: topic of the cluster; its index and the metrics count the queries of everybody; with a stream that is
#: removed ends what others are told of it.
OF_ALL = frozenset(
    (
        _METRICS,
        ("PUT", "/v1/sources/{name}"),
        ("GET", "/v1/sources/{name}/index"),
        ("DELETE", "/v1/streams/{id}"),
    )
)

_SCHEME = "key"
_REALM = 'Bearer realm="rangewatch"'
_EVERYBODY = Principal(None, Role.ADMIN, DEFAULT_TENANT, None)


def is_loopback(host: str) -> bool:
    """Whether a host, as a setting or a header names it, is this machine and nothing else."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _require(principal: Principal, role: Role, what: str) -> None:
    if not principal.role.covers(role):
        raise ProblemError(
            403,
            "forbidden",
            "Authorization",
            f"{what} needs the role {role}; {principal.name} has {principal.role}",
            extra={"needs": role, "has": principal.role},
            headers={"WWW-Authenticate": f'{_REALM}, error="insufficient_scope", scope="{role}"'},
        )


def _require_default_tenant(principal: Principal, what: str) -> None:
    if principal.tenant != DEFAULT_TENANT:
        raise ProblemError(
            403,
            "forbidden",
            "Authorization",
            f"{what} is about what all tenants share: for keys of the tenant {DEFAULT_TENANT},"
            f" not of {principal.tenant}",
        )


class Guard:
    """Holds every request to ``ROLES``, and leaves who asks in ``request.state.principal``; with
    ``request.state.is_still_let_in`` an answer without end asks again, now and then.

    ``clock_s`` is for rates (any origin), ``now`` for what expires.
    """

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Reads the file of keys. Raises KeysError."""
        self._keys = KeyRing(Path(settings.keys_file), clock_s) if settings.keys_file else None
        self._requests = Rates(settings.max_requests_per_s, settings.max_requests_burst)
        self._bytes = Rates(settings.max_bytes_per_s, max(int(settings.max_bytes_per_s), 1))
        self._is_private = self._keys is None and not settings.allow_open
        self._roles = {**ROLES, _METRICS: None} if settings.open_metrics else ROLES
        self._metrics = metrics
        self._clock_s = clock_s
        self._now = now

    async def __call__(self, request: Request) -> None:
        """Within ``Bodies``. Raises ProblemError: 401, 403, 429."""
        path = request.scope["route"].path_format
        operation = (request.method, path)
        needed, what, is_of_all = self._roles[operation], " ".join(operation), operation in OF_ALL
        if request.path_params.get("topic") == DEAD_LETTER:
            needed, what, is_of_all = Role.ADMIN, f"the topic {DEAD_LETTER}", True
        if needed is None:
            return
        try:
            request.state.principal = principal = self._principal(request)
            request.state.is_still_let_in = partial(self._is_still, principal, request)
            self._take_turn(principal, body_of(request))
            _require(principal, needed, what)
            if is_of_all:
                _require_default_tenant(principal, what)
        except ProblemError as refused:
            self._metrics.request_refused(refused.reason)
            raise

    def _principal(self, request: Request) -> Principal:
        if self._keys is None:
            if self._is_private:
                _check_is_from_here(request)
            return _EVERYBODY
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not text.strip():
            raise _unauthenticated("send a key, as Authorization: Bearer rw_...", _REALM)
        try:
            return self._keys.principal(text.strip(), self._now())
        except KeyRefused as refused:
            raise _unauthenticated(str(refused), f'{_REALM}, error="invalid_token"') from None

    def _is_still(self, principal: Principal, request: Request) -> bool:
        """Whether the key that a request has shown still is that of the same principal."""
        try:
            return self._principal(request) == principal
        except ProblemError:
            return False

    def _take_turn(self, principal: Principal, body: Body) -> None:
        """One request, and what is read of its body, whatever the answer."""
        name = principal.name and key_of(principal.tenant, principal.name)
        body.on_piece = lambda length: self._bytes.take(name, length, self._clock_s())
        now_s = self._clock_s()
        _check_rate(self._bytes, name, now_s, "bytes of bodies", "max_bytes_per_s")
        _check_rate(self._requests, name, now_s, "requests", "max_requests_per_s")
        self._requests.take(name, 1, now_s)


def _check_rate(rates: Rates, name: str | None, now_s: float, what: str, limit: str) -> None:
    wait_s = rates.wait_s(name, now_s)
    if wait_s > 0:
        raise ProblemError(
            429,
            "quota",
            "",
            f"more than {rates.per_s:g} {what} a second, which is {limit}; try again in {wait_s:.3g} s",
            extra={"limit": limit, "allowed": rates.per_s},
            headers={"Retry-After": str(math.ceil(wait_s))},
        )


def _unauthenticated(detail: str, challenge: str) -> ProblemError:
    return ProblemError(
        401, "unauthenticated", "Authorization", detail, headers={"WWW-Authenticate": challenge}
    )


def _check_is_from_here(request: Request) -> None:
    """Without keys: the request is not one that a browser makes for another site's page, neither openly
    (Origin) nor under a name that this site has given to our address (Host)."""
    host = request.headers.get("host", "")
    origin = request.headers.get("origin")
    if host and not is_loopback(_name(host)):
        field, value = "Host", host
    elif origin is not None and origin.partition("://")[2] != host:
        field, value = "Origin", origin
    else:
        return
    detail = (
        f"a service without keys answers this machine only, not {value[:200]!r}: set keys_file or allow_open"
    )
    raise ProblemError(403, "forbidden", field, detail)


def _name(host: str) -> str:
    """A Host header without its port."""
    bare, colon, port = host.rpartition(":")
    return bare if colon and port.isdecimal() else host


def check_roles(routes: Iterable[BaseRoute]) -> None:
    """Raises ValueError for a route of which ``ROLES`` does not name every operation."""
    for route in routes:
        assert isinstance(route, APIRoute)
        for method in route.methods or ():
            if (method, route.path_format) not in ROLES:
                raise ValueError(f"api.access names no role for {method} {route.path_format}")


def document_roles(document: dict[str, Any]) -> None:
    """Adds to an OpenAPI document what the guard asks for and how it refuses."""
    document["components"]["securitySchemes"] = {
        _SCHEME: {
            "type": "http",
            "scheme": "bearer",
            "description": "A key of `rangewatch keys new`. A service without keys asks for none.",
        }
    }
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            role = ROLES[method.upper(), path]
            operation["security"] = [] if role is None else [{_SCHEME: []}]
            if role is not None:
                operation["x-role"] = role
                if (method.upper(), path) in OF_ALL:
                    operation["x-tenant"] = DEFAULT_TENANT
                refusals = {str(status): entry for status, entry in documented(401, 403, 429).items()}
                operation["responses"] = {**operation["responses"], **refusals}
