"""Faults are tried on the session's broker, or on one of their own where it is the broker that fails."""

from __future__ import annotations

from tests.broker import broker  # noqa: F401 (a fixture)
