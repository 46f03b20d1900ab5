from __future__ import annotations

import asyncio
import gc
import weakref
from concurrent.futures import Future

from service.api.context import _result


class Away(Exception):
    pass


def test_what_a_request_fails_of_goes_with_it() -> None:
    """It holds the calls that it came through, and with them the body."""

    async def asked() -> weakref.ref[Away]:
        future: Future[None] = Future()
        future.set_exception(Away())
        try:
            await _result(future)
        except Away as away:
            gone = weakref.ref(away)
        del future  # which has the failure, and that this call
        return gone

    gc.disable()
    try:
        assert asyncio.run(asked())() is None
    finally:
        gc.enable()
