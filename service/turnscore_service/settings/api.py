"""Settings of the transports, the page, API keys and the admin sockets."""

from ipaddress import IPv4Address, IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, FilePath, IPvAnyAddress, PositiveFloat, PositiveInt, field_validator, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import NoDecode

from turnscore_service.settings.group import SettingsGroup, split_at_commas


class HttpSettings(SettingsGroup):
    """HTTP: its address, its connections, and the pages that may use it."""

    host: IPvAnyAddress = Field(
        default=IPv4Address("127.0.0.1"),
        description="Address of HTTP, unless `bentoml serve` gets another by `--host`; `0.0.0.0` is every "
        "address of the machine, `::` with IPv6.",
    )
    port: Annotated[int, Field(ge=1, le=65_535)] = Field(
        default=3000, description="Port of HTTP, unless `bentoml serve` gets another by `--port`."
    )
    allowed_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Origins whose pages may use the service from a browser, over HTTP (CORS) and WebSockets "
        "alike, separated by commas, such as `https://chat.example`. The service's own pages, such as /docs, "
        "always may if they are opened by an address, as localhost or by a name in "
        "`TURNSCORE_HTTP__ALLOWED_HOSTS`. Programs send no origin.",
    )
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Names by which callers may address the service, separated by commas, such as "
        "`turnscore.example`. Other names are refused, except addresses and localhost. Empty: programs may use "
        "every name, pages none.",
    )

    header_timeout_seconds: PositiveFloat = Field(
        default=10.0,
        description="Seconds from the beginning of a connection, or of a further request on it, to the end of "
        "the request's headers; a slower connection is closed. Chosen, as long as a body may take.",
    )
    max_head_bytes: Annotated[int, Field(ge=1024)] = Field(
        default=65_536,
        description="Bytes of a request's first line and its headers, of which there may be 128; beyond, the "
        "request is refused as `too_large` (431) and the connection closed. Chosen: what most proxies take at "
        "most.",
    )

    @field_validator("allowed_origins", "allowed_hosts", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return split_at_commas(value)


class PageSettings(SettingsGroup):
    """The page at /, on which a person reads a conversation with its scores."""

    enabled: bool = Field(default=True, description="Whether / serves the page for reading conversations with scores.")


class GrpcSettings(SettingsGroup):
    """gRPC."""

    enabled: bool = Field(default=True, description="Whether gRPC is served.")
    host: str = Field(
        default="127.0.0.1",
        description="Address of gRPC; `0.0.0.0` is every address of the machine, `::` with IPv6.",
    )
    port: Annotated[int, Field(ge=0, le=65_535)] = Field(
        default=50_051,
        description="Port of gRPC; all workers share it. 0 takes a free port, which the log names.",
    )
    tls_cert_file: FilePath | None = Field(
        default=None, description="Certificate chain (PEM) of gRPC; read again when it changes. Empty: plain text."
    )
    tls_key_file: FilePath | None = Field(default=None, description="Its private key (PEM).")
    tls_client_ca_file: FilePath | None = Field(
        default=None,
        description="Authorities (PEM). Callers must then show a certificate that one of them signed (mutual TLS).",
    )
    max_message_bytes: PositiveInt = Field(
        default=4 * 1024 * 1024,
        description="Bytes beyond which the transport itself breaks a message off, as RESOURCE_EXHAUSTED "
        "without details. Below it, a message beyond `TURNSCORE_LIMITS__MAX_BODY_BYTES` is refused as "
        "`too_large`. gRPC's default.",
    )
    max_concurrent_streams: PositiveInt = Field(
        default=4096, description="Calls and conversations at once over one connection. Chosen."
    )
    max_concurrent_calls: PositiveInt = Field(
        default=4096,
        description="Calls and conversations at once in one worker process, over all connections; a further one "
        "is RESOURCE_EXHAUSTED, without details. Each may hold one message in memory. Chosen.",
    )
    keepalive_seconds: PositiveFloat = Field(
        default=60.0, description="Seconds of silence after which a connection is probed. Chosen."
    )
    keepalive_timeout_seconds: PositiveFloat = Field(
        default=20.0, description="Seconds after which a probe without an answer ends the connection. gRPC's default."
    )
    min_ping_seconds: PositiveFloat = Field(
        default=10.0,
        description="Least seconds between two probes of a caller; a connection that probes more often is "
        "closed. Chosen.",
    )
    max_connection_age_seconds: Annotated[float, Field(ge=0)] = Field(
        default=0.0,
        description="Seconds after which the service asks a caller to connect anew, so that callers spread over "
        "the workers again; calls in flight go on. 0: never.",
    )
    compression: Literal["none", "gzip", "deflate"] = Field(
        default="none", description="Compression of replies. Requests may always be compressed."
    )
    reflection: bool = Field(default=True, description="Whether gRPC describes its calls to tools such as grpcurl.")

    @model_validator(mode="after")
    def _tls_is_whole(self) -> "GrpcSettings":
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise PydanticCustomError("tls_pair", "tls_cert_file and tls_key_file go together")
        if self.tls_client_ca_file is not None and self.tls_cert_file is None:
            raise PydanticCustomError("tls_pair", "tls_client_ca_file needs tls_cert_file and tls_key_file")
        return self


KeyName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


TurnsPerSecond = Annotated[float, Field(ge=0.001, allow_inf_nan=False)]
"""At a lower rate, the longest legal dialogue could be paid off later than 32 bits of milliseconds hold."""


class KeyEntry(SettingsGroup):
    """One API key: what is known of it, which is not the key itself."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    turns_per_second: TurnsPerSecond | None = None
    burst: PositiveInt | None = None

    @model_validator(mode="after")
    def _burst_has_a_rate(self) -> "KeyEntry":
        if self.burst is not None and self.turns_per_second is None:
            raise PydanticCustomError("burst", "burst needs turns_per_second")
        return self


class AdminSettings(SettingsGroup):
    """How the operator of this machine reaches the running processes."""

    folder: Path | None = Field(
        default=None,
        description="Folder of the admin sockets, one per worker, through which `turnscore models serve` has models "
        "switched; made with mode 700 if its parent is there, refused where other users may look into it. Empty: "
        "there are none.",
    )


class AuthSettings(SettingsGroup):
    """API keys, for HTTP and gRPC."""

    keys_file: FilePath | None = Field(
        default=None,
        description="TOML file of API keys, one table per key (`turnscore keys new` writes it); read again when "
        "it changes. Without keys here and below, everybody may call.",
    )
    keys: dict[KeyName, KeyEntry] = Field(
        default_factory=dict,
        description='Further keys, by name, as JSON: `{"chatbot": {"sha256": "...", "turns_per_second": 50}}`, '
        "with the SHA-256 in hexadecimal of a key that nobody can guess.",
    )
    trusted_proxies: Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode] = Field(
        default=(),
        description="Addresses and networks of proxies, separated by commas, whose `X-Forwarded-For` names the "
        "caller. Callers without keys share by address; all callers behind a proxy that is not named here count "
        "as one.",
    )
    metrics_need_key: bool = Field(default=False, description="Whether /metrics needs a key too.")

    @field_validator("trusted_proxies", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return split_at_commas(value)
