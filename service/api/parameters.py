"""Parameters of the query string: what an operation does not take is refused, everywhere alike.

Idea: the part of the OpenAPI document that is about an operation names its parameters, so one check before
the handler does for all of them, also for those that take none. A parameter that is misspelt would else be
no filter and no limit, without a word; and of one that is said twice the last alone would count.

That part is made when an operation is first asked for with parameters: the whole document takes a third of a
second, in which nobody else would be answered.

Not for: what the parameters may be (the models of the handlers).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from fastapi import Request
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from service.literals import shown
from service.model import Reason, Refusal


async def check_names(request: Request) -> None:
    """Raises Refusal: unknown_field, bad_value (one that is no list, more than once)."""
    if not request.query_params:
        return
    known = _parameters(request.scope["route"])
    for name, count in Counter(name for name, _ in request.query_params.multi_items()).items():
        if name not in known:
            detail = f"is no parameter here; there are {', '.join(known)}" if known else "none is taken here"
            raise Refusal(Reason.UNKNOWN_FIELD, shown(name), detail)
        if count > 1 and not known[name]:
            raise Refusal(Reason.BAD_VALUE, name, f"stands there {count} times; say it once")


_known: dict[Any, dict[str, bool]] = {}


def _parameters(route: APIRoute) -> dict[str, bool]:
    """The parameters of an operation in the query string, and whether each may stand there several times."""
    if route.endpoint not in _known:  # one operation each
        (methods,) = get_openapi(title="-", version="-", routes=[route])["paths"].values()
        (operation,) = methods.values()
        _known[route.endpoint] = {
            one["name"]: _is_list(one["schema"])
            for one in operation.get("parameters", ())
            if one["in"] == "query"
        }
    return _known[route.endpoint]


def _is_list(schema: Mapping[str, Any]) -> bool:
    return any(one.get("type") == "array" for one in (schema, *schema.get("anyOf", ())))
