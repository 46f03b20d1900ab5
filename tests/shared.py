"""Where the shared conformance cases and data sets lie: beside the checkout, or where the variable says."""

from __future__ import annotations

import os
from pathlib import Path

SHARED = Path(os.environ.get("RANGEWATCH_SHARED", Path(__file__).resolve().parents[2] / "shared"))
