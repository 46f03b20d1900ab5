"""Parameters of the query string: what an operation does not take is refused, everywhere alike.

Idea: the OpenAPI document names the parameters of every operation, so one check before the handler does for
all of them, also for those that take none. A parameter that is misspelt would else be no filter and no limit,
without a word; and of one that is said twice the last alone would count.

Not for: what the parameters may be (the models of the handlers).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from fastapi import Request

from service.literals import shown
from service.model import Reason, Refusal


async def check_names(request: Request) -> None:
    """Raises Refusal: unknown_field, bad_value (one that is no list, more than once)."""
    if not request.query_params:
        return
    path = request.scope["route"].path_format
    operation = request.app.openapi()["paths"][path][request.method.lower()]
    known = {one["name"]: one["schema"] for one in operation.get("parameters", ()) if one["in"] == "query"}
    for name, count in Counter(name for name, _ in request.query_params.multi_items()).items():
        if name not in known:
            detail = f"is no parameter here; there are {', '.join(known)}" if known else "none is taken here"
            raise Refusal(Reason.UNKNOWN_FIELD, shown(name), detail)
        if count > 1 and not _is_list(known[name]):
            raise Refusal(Reason.BAD_VALUE, name, f"stands there {count} times; say it once")


def _is_list(schema: Mapping[str, Any]) -> bool:
    return any(one.get("type") == "array" for one in (schema, *schema.get("anyOf", ())))
