"""Query indexes: which stored boxes hold a point. Pure numpy and numba; one protocol, batch first."""
