"""TLS: which files a gRPC client is trusted by and trusts. Reads none of them."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Tls:
    """An encrypted connection over gRPC; the files hold PEM and are read when the client is made.

    `ca_file` holds the authorities that may have signed the service's certificate; those that gRPC ships when left out.
    `cert_file` and `key_file` are the caller's own, for a service that asks for one (mutual TLS); both or neither, or
    ValueError.
    """

    ca_file: str | Path | None = None
    cert_file: str | Path | None = None
    key_file: str | Path | None = None

    def __post_init__(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("tls: cert_file and key_file go together")
