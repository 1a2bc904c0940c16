"""TLS of the gRPC door: credentials from files, read again when they change. Refuses a pair that does not fit."""

import logging
import ssl
from pathlib import Path

import grpc

from turnscore_service.settings.doors import GrpcSettings

_LOGGER = logging.getLogger("turnscore.grpc")
_Stamps = tuple[tuple[int, int, int], ...]


class UnusableCertificateError(Exception):
    """The files of the settings do not make a server's certificate; the message says which and why."""


def server_credentials(settings: GrpcSettings) -> grpc.ServerCredentials | None:
    """The credentials that the settings name, None for plain text. Raises UnusableCertificateError."""
    if settings.tls_cert_file is None or settings.tls_key_file is None:
        return None
    files = _CertificateFiles(settings.tls_cert_file, settings.tls_key_file, settings.tls_client_ca_file)
    return grpc.dynamic_ssl_server_credentials(
        files.read(),
        files.read_if_changed,  # type: ignore[arg-type]  # the stubs do not know of its None for "no change"
        require_client_authentication=settings.tls_client_ca_file is not None,
    )


class _CertificateFiles:
    def __init__(self, cert: Path, key: Path, client_ca: Path | None) -> None:
        self._cert = cert
        self._key = key
        self._client_ca = client_ca
        self._stamps: _Stamps | None = None

    def read(self) -> grpc.ServerCertificateConfiguration:
        """The contents of the files. Raises UnusableCertificateError."""
        try:
            self._stamps = self._look()
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._cert, self._key)
            if self._client_ca is not None:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(self._client_ca)
            pair = (self._key.read_bytes(), self._cert.read_bytes())
            authorities = self._client_ca.read_bytes() if self._client_ca is not None else None
        except OSError as error:  # ssl.SSLError is one
            names = ", ".join(str(path) for path in (self._cert, self._key, self._client_ca) if path is not None)
            raise UnusableCertificateError(f"{names}: {error.strerror or error}") from None
        return grpc.ssl_server_certificate_configuration([pair], authorities)

    def read_if_changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Called before each handshake; None for no change. Files that do not fit change nothing; reported once."""
        try:
            return None if self._look() == self._stamps else self.read()
        except (OSError, UnusableCertificateError) as error:
            _LOGGER.error("the certificate stays as it was: %s", error)
            return None

    def _look(self) -> _Stamps:
        paths = (self._cert, self._key, *([self._client_ca] if self._client_ca is not None else []))
        found = [path.stat() for path in paths]
        return tuple((each.st_mtime_ns, each.st_size, each.st_ino) for each in found)
