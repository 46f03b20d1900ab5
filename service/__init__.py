"""Rangewatch: a streaming matching service for continual range queries."""

__version__ = "0.1.0"
