"""What the kernels of Spatial Join are given, as one argument.

Not for: how it is made (``spatial_join_regions``), what is done with it (``spatial_join_kernels``).
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.kernel import reads

_Number = TypeVar("_Number", bound=np.generic)


class Filed(NamedTuple):
    """The query index: boxes in runs, by their numbers. All arrays are read-only views (``read_only``).

    ``near``: their ends in float32, a block a run (``scan``); ``lo``, ``hi``: ``float64[capacity, d]``;
    ``slots``: ``int32[capacity]``, negative for a removed box; boxes below ``stop`` are filed; ``ends`` and
    ``levels``: the directory (``spatial_join_regions``).
    """

    near: NDArray[np.float32]
    lo: NDArray[np.float64]
    hi: NDArray[np.float64]
    slots: NDArray[np.int32]
    stop: int
    ends: NDArray[np.float64]
    levels: NDArray[np.int64]


def read_only(array: NDArray[_Number]) -> NDArray[_Number]:
    """A view of an array that cannot be written: inside of a tuple, a kernel tells the two apart."""
    view = array.view()
    view.flags.writeable = False
    return view


FILED: Any = types.NamedTuple(  # type: ignore[no-untyped-call]
    (
        reads(types.float32, 2),
        reads(types.float64, 2),
        reads(types.float64, 2),
        reads(types.int32, 1),
        types.int64,
        reads(types.float64, 2),
        reads(types.int64, 1),
    ),
    Filed,
)
