"""Parameters of the query string: what an operation does not take is refused, everywhere alike.

Idea: the OpenAPI document names the parameters of every operation, so one check before the handler does for
all of them, also for those that take none. A parameter that is misspelt would else be no filter and no limit,
without a word.

Not for: what the parameters may be (the models of the handlers).
"""

from __future__ import annotations

from fastapi import Request

from service.literals import shown
from service.model import Reason, Refusal


async def check_names(request: Request) -> None:
    """Raises Refusal: unknown_field."""
    if not request.query_params:
        return
    path = request.scope["route"].path_format
    operation = request.app.openapi()["paths"][path][request.method.lower()]
    known = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
    for name in request.query_params:
        if name not in known:
            detail = f"is no parameter here; there are {', '.join(known)}" if known else "none is taken here"
            raise Refusal(Reason.UNKNOWN_FIELD, shown(name), detail)
