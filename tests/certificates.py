"""Certificates for tests, made by the ``openssl`` program: an authority, and what it signs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple


class Signed(NamedTuple):
    """A certificate and its private key, PEM, in two files."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates in a folder; ``cert`` is what its friends trust."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self.cert, self.key = folder / f"{name}.pem", folder / f"{name}.key"
        _openssl(*_request(name, self.key), "-noenc", "-out", self.cert)

    def sign(self, name: str, password: str | None = None) -> Signed:
        """A certificate of ``name`` for 127.0.0.1 and localhost; ``password`` encrypts its key."""
        made = Signed(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        hosts = "subjectAltName=DNS:localhost,IP:127.0.0.1"
        closed = ["-noenc"] if password is None else ["-passout", f"pass:{password}"]
        by = ["-CA", self.cert, "-CAkey", self.key, "-addext", hosts, "-addext", "basicConstraints=CA:FALSE"]
        _openssl(*_request(name, made.key), *closed, *by, "-out", made.cert)
        return made

    def revoke(self, signed: Signed) -> Path:
        """A list of what is revoked, which is this certificate."""
        listed, config, database = (self._folder / f"crl.{kind}" for kind in ("pem", "cnf", "txt"))
        database.write_text("")
        own = f"database = {database}\ndefault_md = sha256\ndefault_crl_days = 2\n"
        config.write_text(f"[ca]\ndefault_ca = own\n[own]\n{own}")
        by = ["ca", "-config", config, "-cert", self.cert, "-keyfile", self.key]
        _openssl(*by, "-revoke", signed.cert)
        _openssl(*by, "-gencrl", "-out", listed)
        return listed


def _request(name: str, key: Path) -> list[str | Path]:
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    return ["req", "-x509", "-days", "2", "-subj", f"/CN={name}", *curve, "-keyout", key]


def _openssl(*words: str | Path) -> None:
    done = subprocess.run(["openssl", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
