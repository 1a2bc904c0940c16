"""gRPC channels: how a connection is opened, kept and encrypted (extra `grpc`). Sends nothing."""

import ssl
from pathlib import Path
from typing import Any

from turnscore_client import _defaults
from turnscore_client._extras import needs_extra
from turnscore_client._settings import USER_AGENT
from turnscore_client._tls import Tls, load_authorities, load_own_pair

with needs_extra("grpc", "a gRPC client"):
    import grpc

OPTIONS: list[tuple[str, Any]] = [
    ("grpc.primary_user_agent", USER_AGENT),
    ("grpc.enable_retries", 0),  # ours know the call's deadline and the service's own hints
    # Calls take turns among all addresses of a name; with one address this changes nothing.
    ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'),
    ("grpc.max_receive_message_length", _defaults.MAX_REPLY_BYTES),
    ("grpc.keepalive_time_ms", round(1000 * _defaults.KEEPALIVE_SECONDS)),
    ("grpc.keepalive_timeout_ms", round(1000 * _defaults.KEEPALIVE_TIMEOUT_SECONDS)),
    # The channel comes back from a lost connection at the pace at which calls are tried again.
    ("grpc.initial_reconnect_backoff_ms", round(1000 * _defaults.FIRST_DELAY_SECONDS)),
    ("grpc.min_reconnect_backoff_ms", round(1000 * _defaults.CONNECT_TIMEOUT_SECONDS)),
    ("grpc.max_reconnect_backoff_ms", round(1000 * _defaults.LONGEST_DELAY_SECONDS)),
]
"""gRPC's own options (grpc/impl/channel_arg_names.h)."""


def open_channel(grpc_or_aio: Any, address: str, credentials: "grpc.ChannelCredentials | None") -> Any:
    """A channel of either module, `grpc` or `grpc.aio`; it connects with its first call."""
    if credentials is None:
        return grpc_or_aio.insecure_channel(address, options=OPTIONS)
    return grpc_or_aio.secure_channel(address, credentials, options=OPTIONS)


def credentials_of(tls: Tls | None) -> "grpc.ChannelCredentials | None":
    """The credentials of these files. Raises ValueError for files that cannot be read, or do not fit together."""
    if tls is None:
        return None
    return grpc.ssl_channel_credentials(_authorities(tls.ca_file), *_own_pair(tls.cert_file, tls.key_file))


def _authorities(file: str | Path | None) -> bytes | None:
    if file is None:
        return None
    load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), file)
    return Path(file).read_bytes()


def _own_pair(cert: str | Path | None, key: str | Path | None) -> tuple[bytes | None, bytes | None]:
    """The caller's own key and certificate, in grpc's order."""
    if cert is None or key is None:
        return None, None
    load_own_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), cert, key)
    return Path(key).read_bytes(), Path(cert).read_bytes()
