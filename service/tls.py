"""TLS: contexts made of files, with errors that name the setting and no question on the terminal.

Both sides speak TLS 1.2 and newer. A server's certificate may be replaced while it serves (``Certificate``).
Not for: what is sent through it.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from service.settings import Settings, SettingsError
from service.watch import Watch


def kafka_context(settings: Settings) -> ssl.SSLContext:
    """How the brokers are told, and what this client shows them. Raises SettingsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.kafka_ssl_check_hostname
    if settings.kafka_ssl_cafile:
        _trust(context, settings.kafka_ssl_cafile, "kafka_ssl_cafile")
    else:
        context.load_default_certs()
    if settings.kafka_ssl_crlfile:
        _trust(context, settings.kafka_ssl_crlfile, "kafka_ssl_crlfile")
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    if settings.kafka_ssl_ciphers:
        try:
            context.set_ciphers(settings.kafka_ssl_ciphers)
        except ssl.SSLError:
            raise SettingsError("setting 'kafka_ssl_ciphers' names no cipher that is here") from None
    if settings.kafka_ssl_certfile:
        _show(context, settings, "kafka_ssl_certfile", "kafka_ssl_keyfile", "kafka_ssl_password")
    return context


def registry_context(settings: Settings) -> ssl.SSLContext:
    """How the schema registry is told, and what this client shows it. Raises SettingsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.schema_registry_cafile:
        _trust(context, settings.schema_registry_cafile, "schema_registry_cafile")
    else:
        context.load_default_certs()
    if settings.schema_registry_certfile:
        names = (f"schema_registry_{name}" for name in ("certfile", "keyfile", "key_password"))
        _show(context, settings, *names)
    return context


class Certificate:
    """The certificate of the HTTP server. ``context`` is for all connections; new ones get what
    ``refresh`` found last."""

    def __init__(self, settings: Settings) -> None:
        """Raises SettingsError."""
        self._settings = settings
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        if settings.tls_client_ca:
            _trust(self.context, settings.tls_client_ca, "tls_client_ca")
            self.context.verify_mode = ssl.CERT_REQUIRED
        self._watch = Watch(*(Path(name) for name in (settings.tls_cert, settings.tls_key) if name))
        self._load()

    def _load(self) -> None:
        _show(self.context, self._settings, "tls_cert", "tls_key", "tls_key_password")

    def refresh(self) -> bool:
        """Loads the files if they have changed, until that goes well, and says so. Raises SettingsError where
        they cannot be read or do not fit, and whatever else kept them from being loaded, once a change and
        reason; the last certificate stays in use."""
        if not self._watch.is_due():
            return False
        try:
            # Into a context of its own first: half a change must not be served.
            Certificate(self._settings)
            self._load()
        except Exception as error:
            if self._watch.is_news(repr(error)):
                raise
            return False
        self._watch.has_been_read()
        return True


def _trust(context: ssl.SSLContext, file: str, name: str) -> None:
    try:
        context.load_verify_locations(file)
    except ssl.SSLError as error:
        raise SettingsError(f"setting {name!r}: {file} has none in PEM ({error.reason})") from None
    except OSError as error:
        raise SettingsError(f"setting {name!r}: cannot read {file}: {error.strerror}") from None


def _show(context: ssl.SSLContext, settings: Settings, cert: str, key: str, password: str) -> None:
    """Loads a certificate chain and its key, named by these settings."""
    chain, private = getattr(settings, cert), getattr(settings, key)
    text = settings.secret(password) or ""
    try:
        # As a function, also where there is none: OpenSSL would ask on the terminal.
        context.load_cert_chain(chain, private or None, lambda: text)
    except ssl.SSLError as error:
        detail = f"the certificate, its key and its password do not fit ({error.reason})"
        raise SettingsError(f"setting {cert!r}: {detail}") from None
    except OSError as error:
        files = f"{chain} or {private}" if private else chain
        raise SettingsError(f"setting {cert!r}: cannot read {files}: {error.strerror}") from None
    except ValueError:  # its text may quote a character of the password
        detail = "is none that OpenSSL takes: 1,024 bytes of UTF-8 at the most"
        raise SettingsError(f"setting {password!r}, or its file: {detail}") from None
