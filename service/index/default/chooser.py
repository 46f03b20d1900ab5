"""Which structure holds which boxes."""

from __future__ import annotations

from collections.abc import Sequence

from service.index.default.part import Part, Sparse
from service.index.default.scan_part import ScanPart


def chosen_parts(boxes: Sparse, dims: int) -> Sequence[Part]:
    return [ScanPart.of(boxes, dims)]
