"""Tenants: whose a query is, as part of the one key by which the service knows it.

Idea: inside (catalog, command log, slots, state, records that are owed) a query has a *key*: the id alone for
the default tenant, ``tenant/id`` for every other. Ids cannot hold a slash, so ids of different tenants never
have the same key, and all that was written before there were others is as it was. A collection has a key of
the same kind, and so have its members: ``tenant/name:member``.

Invariants: ``split(key_of(tenant, id)) == (tenant, id)`` for any text as id, so whatever a client names, the
key is one of its own tenant. Clients see ids, never keys.

Not for: who may ask (``keys``), or what is shared by all tenants: sources, streams, events. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

Thing = TypeVar("Thing")

DEFAULT_TENANT = "default"

PATTERN = r"^[A-Za-z0-9._-]{1,100}$"
"""What a tenant can be called."""

_NAME = re.compile(PATTERN)
_SLASH = "/"


def key_of(tenant: str, id: str) -> str:
    """The key of an id, or of a collection's name, within a tenant. Of what is no id it is one that nothing
    has."""
    return id if tenant == DEFAULT_TENANT and _SLASH not in id else f"{tenant}{_SLASH}{id}"


def split(key: str) -> tuple[str, str]:
    """Tenant and id of a key."""
    tenant, slash, id = key.partition(_SLASH)
    return (tenant, id) if slash else (DEFAULT_TENANT, key)


def tenant_of(key: str) -> str:
    return split(key)[0]


def id_of(key: str) -> str:
    """What a key's own tenant calls it."""
    return split(key)[1]


def own(tenant: str, by_key: Mapping[str, Thing]) -> dict[str, Thing]:
    """What of some things by key is a tenant's, by id. O(n)."""
    if tenant == DEFAULT_TENANT:
        return {key: thing for key, thing in by_key.items() if _SLASH not in key}
    prefix = key_of(tenant, "")
    return {key.removeprefix(prefix): thing for key, thing in by_key.items() if key.startswith(prefix)}


def is_tenant(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def order(tenant: str) -> tuple[bool, str]:
    """A sort key of tenants: the default one first, the others by name."""
    return tenant != DEFAULT_TENANT, tenant
