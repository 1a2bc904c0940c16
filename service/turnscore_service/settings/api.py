"""Settings of the transports, the page, API keys and the admin sockets."""

from ipaddress import IPv4Address, IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, FilePath, FiniteFloat, IPvAnyAddress, PositiveFloat, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from turnscore_service.settings.group import EMPTY_IS_NONE, Listed, SettingsGroup


class HttpSettings(SettingsGroup):
    """HTTP: its address, its connections, and the pages that may use it."""

    host: IPvAnyAddress = Field(
        default=IPv4Address("127.0.0.1"),
        description="Address of the HTTP server, unless `bentoml serve` gets `--host`; `0.0.0.0` is every address, "
        "`::` includes IPv6.",
    )
    port: Annotated[int, Field(ge=1, le=65_535)] = Field(
        default=3000, description="Port of the HTTP server, unless `bentoml serve` gets `--port`."
    )
    allowed_origins: Listed[str] = Field(
        default=(),
        description="Origins whose pages may use the service from a browser (CORS and WebSockets): "
        "`https://chat.example` ([security.md](security.md#web-pages)).",
    )
    allowed_hosts: Listed[str] = Field(
        default=(),
        description="Host names by which callers may address the service, next to IP addresses and localhost. "
        "Empty: programs may use any name, pages none.",
    )

    header_timeout_seconds: PositiveFloat = Field(
        default=10.0,
        description="Time for a request's headers, from the start of the connection or of a further request; then the "
        "connection is closed. A body has the same time.",
    )
    max_head_bytes: Annotated[int, Field(ge=1024)] = Field(
        default=65_536, description="Bytes of a request's first line and headers."
    )


class PageSettings(SettingsGroup):
    """The page at /, on which a person reads a conversation with its scores."""

    enabled: bool = Field(
        default=True, description="Whether `/` serves the page for reading conversations with scores."
    )


class GrpcSettings(SettingsGroup):
    """gRPC."""

    enabled: bool = Field(default=True, description="Whether the gRPC server runs.")
    host: str = Field(
        default="127.0.0.1", description="Address of the gRPC server; `0.0.0.0` is every address, `::` includes IPv6."
    )
    port: Annotated[int, Field(ge=0, le=65_535)] = Field(
        default=50_051,
        description="Port of the gRPC server, shared by all workers. 0: a free one, which the log names.",
    )
    tls_cert_file: Annotated[FilePath | None, EMPTY_IS_NONE] = Field(
        default=None,
        description="Certificate chain (PEM) of the gRPC server; read again when it changes. Empty: plain text.",
    )
    tls_key_file: Annotated[FilePath | None, EMPTY_IS_NONE] = Field(default=None, description="Its private key (PEM).")
    tls_client_ca_file: Annotated[FilePath | None, EMPTY_IS_NONE] = Field(
        default=None,
        description="Authorities (PEM), one of which must have signed a caller's certificate (mutual TLS).",
    )
    max_message_bytes: PositiveInt = Field(
        default=4 * 1024 * 1024,
        description="Size from which gRPC itself refuses a message (RESOURCE_EXHAUSTED without details); "
        "below it, `TURNSCORE_LIMITS__MAX_BODY_BYTES` counts. gRPC's default.",
    )
    max_concurrent_streams: PositiveInt = Field(
        default=4096, description="Concurrent calls and conversations over one connection."
    )
    max_concurrent_calls: PositiveInt = Field(
        default=4096,
        description="The same in one worker over all connections; beyond, RESOURCE_EXHAUSTED without details.",
    )
    keepalive_seconds: PositiveFloat = Field(default=60.0, description="Silence after which a connection is probed.")
    keepalive_timeout_seconds: PositiveFloat = Field(
        default=20.0, description="Time after which an unanswered probe ends the connection."
    )
    min_ping_seconds: PositiveFloat = Field(
        default=10.0, description="Shortest interval between probes; a caller that probes more often is disconnected."
    )
    max_connection_age_seconds: Annotated[float, Field(ge=0)] = Field(
        default=0.0, description="Age at which a caller is asked to reconnect, to spread over workers. 0: never."
    )
    compression: Literal["none", "gzip", "deflate"] = Field(
        default="none", description="Compression of replies. Requests may always be compressed."
    )
    reflection: bool = Field(
        default=True, description="Whether the server describes its calls to tools such as grpcurl."
    )

    @model_validator(mode="after")
    def _tls_is_whole(self) -> "GrpcSettings":
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise PydanticCustomError("tls_pair", "tls_cert_file and tls_key_file go together")
        if self.tls_client_ca_file is not None and self.tls_cert_file is None:
            raise PydanticCustomError("tls_pair", "tls_client_ca_file needs tls_cert_file and tls_key_file")
        return self


KeyName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


# At a lower rate, the longest legal dialogue could be paid off later than 32 bits of milliseconds hold.
TurnsPerSecond = Annotated[float, Field(ge=0.001, allow_inf_nan=False)]


Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class KeyEntry(SettingsGroup):
    """What is known of the one or two keys of a name, which is not the keys themselves."""

    sha256: Sha256
    previous_sha256: Sha256 | None = None  # of the key that was rotated out, which is good until it is revoked
    turns_per_second: TurnsPerSecond | None = None
    burst: PositiveInt | None = None
    # What stands for these callers instead of the deployment's; a model is `name:version`, served or of the split.
    thresholds: dict[str, FiniteFloat | None] = Field(default_factory=dict)
    default_scorers: tuple[str, ...] = ()
    models: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _burst_has_a_rate(self) -> "KeyEntry":
        if self.burst is not None and self.turns_per_second is None:
            raise PydanticCustomError("burst", "burst needs turns_per_second")
        return self


class AdminSettings(SettingsGroup):
    """How the operator of this machine reaches the running processes."""

    folder: Annotated[Path | None, EMPTY_IS_NONE] = Field(
        default=None,
        description="Folder of the admin sockets, one per worker, for `turnscore models serve` "
        "([rollouts.md](rollouts.md#switching)); created with mode 700 if its parent exists. Empty: none.",
    )


class AuthSettings(SettingsGroup):
    """API keys, for HTTP and gRPC."""

    keys_file: Annotated[Path | None, EMPTY_IS_NONE] = Field(
        default=None,
        description="TOML file of [API keys](security.md#api-keys); read again when it changes. Without keys "
        "here and below, anyone may call.",
    )
    keys: dict[KeyName, KeyEntry] = Field(
        default_factory=dict,
        description='Further keys by name, as JSON: `{"chatbot": {"sha256": "...", "turns_per_second": 50}}`, with '
        "the hexadecimal SHA-256 of a random key.",
    )
    trusted_proxies: Listed[IPv4Network | IPv6Network] = Field(
        default=(),
        description="Addresses and networks of proxies whose `X-Forwarded-For` names the caller "
        "([security.md](security.md#how-callers-share)).",
    )
    metrics_need_key: bool = Field(default=False, description="Whether `/metrics` requires a key, too.")
