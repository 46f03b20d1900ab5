"""HTTPS: the service's certificate, the clients', a new one without a restart, and what does not fit."""

from __future__ import annotations

import errno
import json
import logging
import signal
import socket
import ssl
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest

from service import watch
from service.__main__ import main
from service.cli import health
from service.cli.serve import renew
from service.settings import Settings, SettingsError
from service.tls import Certificate, kafka_context
from tests.api.harness import eventually
from tests.certificates import Authority
from tests.cli.conftest import Served, serving


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.cert))


def test_clients_with_a_certificate_speak_tls_and_nobody_else(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, client = authority.sign("server", password="the-password-of-the-key"), authority.sign("client")
    trust = trusting(authority)
    trust.load_cert_chain(client.cert, client.key)
    password = tmp_path / "password"
    password.write_text("the-password-of-the-key\n")
    flags = ["--tls-cert", server.cert, "--tls-key", server.key, "--tls-key-password-file", password]
    with serving(tmp_path, *flags, "--tls-client-ca", authority.cert, tls=trust) as served:
        assert served.url.startswith("https://127.0.0.1:")
        with httpx.Client(base_url=served.url, verify=trust) as good:
            answer = good.get("/v1/sources")
            assert answer.json() == {"sources": []}
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "server" not in answer.headers
        for other in (trusting(authority), trusting(Authority(tmp_path, "stranger"))):
            with pytest.raises(httpx.TransportError), httpx.Client(verify=other) as stranger:
                stranger.get(f"{served.url}/v1/sources")
        with pytest.raises(httpx.TransportError):
            httpx.get(served.url.replace("https", "http") + "/healthz")
        assert "the-password-of-the-key" not in served.log.read_text()


@pytest.mark.parametrize("kind", ["plain", "tls", "client certificates"])
def test_the_health_check_asks_as_the_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    authority = Authority(tmp_path)
    server, client = authority.sign("server"), authority.sign("client")
    settings: dict[str, object] = {}
    if kind != "plain":
        settings |= {"tls_cert": str(server.cert), "tls_key": str(server.key)}
    if kind == "client certificates":
        settings |= {"tls_client_ca": str(authority.cert)}
    trust = trusting(authority)
    trust.load_cert_chain(client.cert, client.key)
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    with serving(tmp_path, *flags, tls=trust) as served:
        settings["port"] = int(served.url.rpartition(":")[2])
        with monkeypatch.context() as given:
            for name, value in settings.items():
                given.setenv(f"RANGEWATCH_{name.upper()}", str(value))
            assert main(["health"]) == 0
        file = tmp_path / "settings.toml"
        file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
        monkeypatch.setenv("RANGEWATCH_CONFIG", str(file))
        assert main(["health"]) == 0
        served.process.send_signal(signal.SIGSTOP)  # connections are still taken, by the kernel
        monkeypatch.setattr(health, "_TIMEOUT_S", 0.1)
        assert main(["health"]) == 3
        served.process.kill()
        served.process.wait()
        assert main(["health"]) == 3
        assert f"nothing answers at 127.0.0.1:{settings['port']}" in capsys.readouterr().err


def test_the_health_check_fails_where_the_worker_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dying(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(503 if self.path == "/healthz" else 200)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Dying) as server:
        monkeypatch.setenv("RANGEWATCH_PORT", str(server.server_port))
        thread = Thread(target=server.handle_request)
        thread.start()
        assert main(["health"]) == 1
        thread.join()


def test_who_does_not_come_to_speak_tls_is_no_connection_any_more(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.sign("server")
    trust = trusting(authority)
    flags = ["--tls-cert", server.cert, "--tls-key", server.key, "--max-connections", 3]
    with serving(tmp_path, *flags, tls=trust) as served:
        url = httpx.URL(served.url)
        address = url.host, url.port or 0
        for _ in range(9):
            with socket.create_connection(address) as plain:
                plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
                while plain.recv(1_000):
                    pass
        with ExitStack() as stack:
            for _ in range(4):
                silent = stack.enter_context(socket.create_connection(address, 10))
            assert silent.recv(1_000) == b"", "turned away before it has said a word"
            with pytest.raises(httpx.TransportError):
                httpx.get(f"{served.url}/healthz", verify=trust)
        with httpx.Client(verify=trust) as client:
            eventually(lambda: is_answered(client, served), "room again")


def is_answered(client: httpx.Client, served: Served) -> bool:
    try:
        return client.get(f"{served.url}/healthz").status_code == 200
    except httpx.TransportError:
        return False


def test_what_is_older_than_tls_1_2_is_not_spoken(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    settings = Settings(tls_cert=str(authority.cert), tls_key=str(authority.key))
    assert Certificate(settings).context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert kafka_context(settings).minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_new_certificate_is_used_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    first, second = old.sign("first"), new.sign("second")
    cert = tmp_path / "both.pem"
    cert.write_text(first.cert.read_text() + first.key.read_text())
    with serving(tmp_path, "--tls-cert", cert, tls=trusting(old)) as served:

        def is_served_to(authority: Authority) -> bool:
            try:
                return httpx.get(f"{served.url}/healthz", verify=trusting(authority)).is_success
            except httpx.ConnectError:
                return False

        assert is_served_to(old)
        assert not is_served_to(new)
        cert.write_text(first.cert.read_text() + second.key.read_text())
        eventually(lambda: "the certificate stays as it was" in served.log.read_text(), "the mistake is told")
        assert is_served_to(old)
        cert.write_text(second.cert.read_text() + second.key.read_text())
        eventually(lambda: is_served_to(new), "the new certificate")
        assert not is_served_to(old)
        # The commands trust what the usual variable names.
        monkeypatch.setenv("SSL_CERT_FILE", str(new.cert))
        assert main(["history", "--url", served.url]) == 0
        monkeypatch.setenv("SSL_CERT_FILE", str(old.cert))
        assert main(["history", "--url", served.url]) == 3
        assert "certificate" in capsys.readouterr().err


def shown(by: ssl.SSLContext, to: ssl.SSLContext) -> str:
    """The name in the certificate that one side of a handshake shows the other, without a network."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client, server = to.wrap_bio(back, there, server_hostname="localhost"), by.wrap_bio(there, back, True)
    for side in (client, server, client, server):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    found = client.getpeercert()
    assert found
    return str(dict(part for parts in found["subject"] for part in parts)["commonName"])


def test_a_broker_whose_certificate_is_revoked_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    revoked, good = authority.sign("revoked"), authority.sign("good")
    trust = Settings(kafka_ssl_cafile=str(authority.cert))
    strict = Settings(kafka_ssl_cafile=str(authority.cert), kafka_ssl_crlfile=str(authority.revoke(revoked)))
    by = {
        signed: Certificate(Settings(tls_cert=str(signed.cert), tls_key=str(signed.key))).context
        for signed in (revoked, good)
    }
    assert shown(by[revoked], kafka_context(trust)) == "revoked"
    assert shown(by[good], kafka_context(strict)) == "good"
    with pytest.raises(ssl.SSLCertVerificationError, match="revoked"):
        shown(by[revoked], kafka_context(strict))


@pytest.mark.parametrize("earlier", ["cert", "key"])
def test_half_a_change_is_noticed_and_not_served(tmp_path: Path, earlier: str) -> None:
    authority = Authority(tmp_path)
    first, second = authority.sign("first"), authority.sign("second")
    changes = {"cert": (first.cert, second.cert), "key": (first.key, second.key)}
    certificate = Certificate(Settings(tls_cert=str(first.cert), tls_key=str(first.key)))
    old, new = changes.pop(earlier)
    old.write_text(new.read_text())
    with pytest.raises(SettingsError, match="do not fit"):
        certificate.refresh()
    assert shown(certificate.context, trusting(authority)) == "first"
    ((old, new),) = changes.values()
    old.write_text(new.read_text())
    assert certificate.refresh()
    assert shown(certificate.context, trusting(authority)) == "second"


def test_a_certificate_that_could_not_be_read_is_read_when_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    first, second = authority.sign("first"), authority.sign("second")
    cert = tmp_path / "both.pem"
    cert.write_text(first.cert.read_text() + first.key.read_text())
    certificate = Certificate(Settings(tls_cert=str(cert)))
    cert.write_text(second.cert.read_text() + second.key.read_text())

    def no_descriptor(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(watch, "AGAIN_S", 0)
        patched.setattr(ssl.SSLContext, "load_cert_chain", no_descriptor)
        with pytest.raises(SettingsError, match="Too many open files"):
            certificate.refresh()
        assert not certificate.refresh(), "tried again, and told of once"
    assert certificate.refresh()
    assert not certificate.refresh()


def test_a_password_that_is_none_keeps_the_certificate_until_it_is_one(tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    first, second = old.sign("first", password="hunter2"), new.sign("second", password="hunter2")
    cert, password = tmp_path / "both.pem", tmp_path / "password"
    password.write_text("hunter2")
    cert.write_text(first.cert.read_text() + first.key.read_text())
    flags = ["--tls-cert", cert, "--tls-key-password-file", password]
    with serving(tmp_path, *flags, tls=trusting(old)) as served:
        password.write_text("x" * 1_025)
        cert.write_text(second.cert.read_text() + second.key.read_text())
        told = "the certificate stays as it was: setting 'tls_key_password'"
        eventually(lambda: told in served.log.read_text(), "the mistake is told")
        assert httpx.get(f"{served.url}/healthz", verify=trusting(old)).is_success
        password.write_text("hunter2")
        with httpx.Client(verify=trusting(new)) as client:
            eventually(lambda: is_answered(client, served), "the new certificate")


def test_whatever_keeps_a_certificate_from_being_loaded_is_told_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    certificate = Certificate(Settings(tls_cert=str(authority.cert), tls_key=str(authority.key)))
    authority.cert.touch()

    def unheard_of(*_: object) -> None:
        raise RuntimeError("unheard of")

    with monkeypatch.context() as patched:
        patched.setattr(watch, "AGAIN_S", 0)
        patched.setattr(ssl.SSLContext, "load_cert_chain", unheard_of)
        for _ in range(3):
            renew(certificate)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "unheard of" in caplog.text
    with caplog.at_level(logging.INFO):
        renew(certificate)
    assert "a new certificate is in use" in caplog.text


def test_what_does_not_fit_ends_the_start_and_asks_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path)
    closed, open_ = authority.sign("closed", password="hunter2"), authority.sign("open")
    junk, password, long = tmp_path / "junk", tmp_path / "password", tmp_path / "long"
    junk.write_text("none")
    password.write_text("wrong-password")
    long.write_text("wrong-password" * 100)
    cases = {
        "tls_cert": [
            ["--tls-cert", tmp_path / "nowhere.pem"],
            ["--tls-cert", junk],
            ["--tls-cert", open_.cert],
            ["--tls-cert", open_.cert, "--tls-key", closed.key],
            ["--tls-cert", closed.cert, "--tls-key", closed.key],
            ["--tls-cert", closed.cert, "--tls-key", closed.key, "--tls-key-password-file", password],
            ["--tls-key", open_.key],
        ],
        "tls_key_password": [
            ["--tls-cert", closed.cert, "--tls-key", closed.key, "--tls-key-password-file", long]
        ],
        "tls_client_ca": [["--tls-cert", open_.cert, "--tls-key", open_.key, "--tls-client-ca", junk]],
        "tls_key_password_file": [
            [
                *("--tls-cert", open_.cert, "--tls-key", open_.key),
                "--tls-key-password-file",
                tmp_path / "none",
            ]
        ],
    }
    for named, many in cases.items():
        for flags in many:
            code = main(["serve", "--port", "0", "--log", f"sqlite:{tmp_path / 'log.db'}", *map(str, flags)])
            told = capsys.readouterr().err
            assert code == 2, flags
            assert named in told, flags
            assert "wrong-password" not in told
    assert not (tmp_path / "log.db").exists()
