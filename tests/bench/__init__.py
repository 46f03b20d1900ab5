"""Benchmarks: seeded, apart from the tests, peers in the same run, the ratio first."""
