"""The settings of one client: address, key, times and TLS files. Only this module reads the environment."""

import math
import os
import re
import ssl
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import httpx

from turnscore_client import _defaults
from turnscore_client._options import ClientOptions, check_names

__version__ = version("turnscore-client")

USER_AGENT = f"turnscore-client/{__version__} python/{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, kw_only=True)
class ClientSetup:
    """Checked settings of one client. The key is in no representation of them."""

    # A URL; over gRPC host:port.
    address: str
    api_key: str | None = field(repr=False)
    timeout_seconds: float
    max_retries: int

    def own(self, request_id: str | None, metadata: Mapping[str, str] | None = None) -> dict[str, str]:
        """What travels with one request over either transport; `metadata` is the caller's own, and checked."""
        own = dict(metadata or {})
        if self.api_key is not None:
            own["authorization"] = f"Bearer {self.api_key}"
        if request_id is not None:
            own["x-request-id"] = request_id
        return own

    def headers(self, request_id: str | None, metadata: Mapping[str, str] | None = None) -> dict[str, str]:
        """The same as the headers of a request over HTTP."""
        return {**self.own(request_id, metadata), "Accept": "application/json", "User-Agent": USER_AGENT}


def resolve_http(url: str | None, given: ClientOptions) -> ClientSetup:
    """Arguments first, then the environment, then the defaults; raises ValueError for what makes no sense."""
    url = url or os.environ.get(_defaults.URL_VARIABLE) or _defaults.URL
    _check_url(url)
    return _resolve(url.rstrip("/"), given)


_ADDRESS_PATTERN = r"(dns:///)?(\[[0-9A-Fa-f:.]+\]|[^\s:/?#@\[\]]+):(?P<port>[0-9]{1,5})"


def resolve_grpc(address: str | None, given: ClientOptions) -> ClientSetup:
    """The same for a client over gRPC."""
    address = address or os.environ.get(_defaults.GRPC_ADDRESS_VARIABLE) or _defaults.GRPC_ADDRESS
    matched = re.fullmatch(_ADDRESS_PATTERN, address, re.ASCII)
    if matched is None or not 0 < int(matched["port"]) < 2**16:
        raise ValueError("address must look like host:port, without http://")
    return _resolve(address, given)


def _resolve(address: str, given: ClientOptions) -> ClientSetup:
    check_names(given, ClientOptions.__optional_keys__)
    api_key = given.get("api_key") or os.environ.get(_defaults.API_KEY_VARIABLE) or None
    if not all("!" <= character <= "~" for character in api_key or ""):
        raise ValueError("api_key must be visible ASCII characters without spaces or line ends")
    timeout_seconds = given.get("timeout_seconds", _defaults.TIMEOUT_SECONDS)
    max_retries = given.get("max_retries", _defaults.MAX_RETRIES)
    check_timeout(timeout_seconds)
    if timeout_seconds <= 0:
        raise ValueError("timeout_seconds must be more than 0")
    if max_retries < 0:
        raise ValueError("max_retries must be 0 or more")
    return ClientSetup(address=address, api_key=api_key, timeout_seconds=timeout_seconds, max_retries=max_retries)


def check_timeout(timeout_seconds: float) -> None:
    """Raises ValueError for a timeout no socket can keep."""
    if not math.isfinite(timeout_seconds):
        raise ValueError("timeout_seconds must be a finite number")


def _check_url(url: str) -> None:
    if re.fullmatch(_ADDRESS_PATTERN, url, re.ASCII):
        raise ValueError(f"url must begin with http:// or https://: write http://{url}")
    try:
        parts = httpx.URL(url)
        has_host = "%20" not in parts.host and bool(parts.raw_host.decode("ascii").encode("idna"))
        has_host = (
            has_host and parts.scheme in ("http", "https") and 0 < (80 if parts.port is None else parts.port) < 2**16
        )
    except (httpx.InvalidURL, UnicodeError):
        has_host = False
    if not has_host:
        raise ValueError("url must look like http://host:port or https://host, and the host must be a possible name")
    if parts.userinfo:
        raise ValueError("url must not carry a user or a password; pass api_key")
    if parts.query or parts.fragment:
        raise ValueError("url must not carry a query or a fragment")


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
