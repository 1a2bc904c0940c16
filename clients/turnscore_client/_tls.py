"""TLS: which files a client is trusted by and trusts, and their way into a context of ssl. Opens no connection."""

import ssl
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Tls:
    """An encrypted connection; the files hold PEM and are read when the client is made.

    `ca_file` holds the authorities that may have signed the service's certificate; when left out the public
    ones: over HTTP those of certifi, or of SSL_CERT_FILE in the environment, over gRPC those that it ships.
    `cert_file` and `key_file` are the caller's own, for a service that asks for one (mutual TLS); both or neither, or
    ValueError.
    """

    ca_file: str | Path | None = None
    cert_file: str | Path | None = None
    key_file: str | Path | None = None

    def __post_init__(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("tls: cert_file and key_file go together")


def load_authorities(context: ssl.SSLContext, file: str | Path) -> None:
    """Has the context trust the authorities in the file too. ValueError where it cannot be read, or holds none."""
    try:
        context.load_verify_locations(file)
    except OSError as error:  # ssl.SSLError is one
        raise ValueError(f"tls: {file}: {error.strerror or error}") from None


def load_own_pair(context: ssl.SSLContext, cert: str | Path, key: str | Path) -> None:
    """Has the context show the certificate. Raises ValueError where the two cannot be read, or do not fit together."""
    try:
        context.load_cert_chain(cert, key)
    except OSError as error:
        raise ValueError(f"tls: {cert}, {key}: {error.strerror or error}") from None
