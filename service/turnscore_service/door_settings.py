"""Door settings: what the doors can be told. A part of settings.py; reads nothing by itself."""

from typing import Annotated, Literal

from pydantic import Field, FilePath, PositiveFloat, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from turnscore_service.settings_group import SettingsGroup


class GrpcSettings(SettingsGroup):
    """The gRPC door."""

    enabled: bool = Field(default=True, description="Whether there is a gRPC door.")
    host: str = Field(
        default="127.0.0.1", description="Address it listens on; `0.0.0.0` is every one of the machine, `::` with IPv6."
    )
    port: Annotated[int, Field(ge=0, le=65_535)] = Field(
        default=50_051, description="Port; all workers share it. 0 takes a free one, which the log tells."
    )
    tls_cert_file: FilePath | None = Field(
        default=None, description="Certificate chain (PEM) of the door; read again when it changes. Plain text without."
    )
    tls_key_file: FilePath | None = Field(default=None, description="Its private key (PEM).")
    tls_client_ca_file: FilePath | None = Field(
        default=None,
        description="Authorities (PEM): callers must show a certificate that one of them signed (mutual TLS).",
    )
    max_message_bytes: PositiveInt = Field(
        default=4 * 1024 * 1024,
        description="Bytes beyond which the transport itself breaks a message off, as RESOURCE_EXHAUSTED without "
        "details; up to it, more than `TURNSCORE_LIMITS__MAX_BODY_BYTES` is refused as `too_large`. gRPC's default.",
    )
    max_concurrent_streams: PositiveInt = Field(
        default=4096, description="Calls and conversations at once over one connection. Chosen."
    )
    keepalive_seconds: PositiveFloat = Field(
        default=60.0, description="Seconds of silence after which a connection is probed. Chosen."
    )
    keepalive_timeout_seconds: PositiveFloat = Field(
        default=20.0, description="Seconds after which a probe without an answer ends the connection. gRPC's default."
    )
    min_ping_seconds: PositiveFloat = Field(
        default=10.0, description="Callers that probe more often than this are sent away. Chosen."
    )
    max_connection_age_seconds: Annotated[float, Field(ge=0)] = Field(
        default=0.0,
        description="Seconds after which a connection is asked to come anew, so that callers spread over the workers "
        "again; calls in flight go on. 0: never.",
    )
    compression: Literal["none", "gzip", "deflate"] = Field(
        default="none", description="How replies are compressed; requests may always come compressed."
    )
    reflection: bool = Field(default=True, description="Whether the door describes its calls to tools such as grpcurl.")

    @model_validator(mode="after")
    def _tls_is_whole(self) -> "GrpcSettings":
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise PydanticCustomError("tls_pair", "tls_cert_file and tls_key_file go together")
        if self.tls_client_ca_file is not None and self.tls_cert_file is None:
            raise PydanticCustomError("tls_pair", "tls_client_ca_file needs tls_cert_file and tls_key_file")
        return self


KeyName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


TurnsPerSecond = Annotated[float, Field(ge=0.001, allow_inf_nan=False)]
"""Slower, a dialogue as long as the limits allow might be paid off later than 32 bits of milliseconds can tell."""


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


class AuthSettings(SettingsGroup):
    """API keys, for both doors."""

    keys_file: FilePath | None = Field(
        default=None,
        description="TOML file of API keys, one table a key (`turnscore-keys new` writes it); read again when it "
        "changes. Without keys here and below, everybody may call.",
    )
    keys: dict[KeyName, KeyEntry] = Field(
        default_factory=dict,
        description='Further keys, by name, as JSON: `{"chatbot": {"sha256": "...", "turns_per_second": 50}}`; '
        "SHA-256 in hexadecimal of a key that nobody could guess.",
    )
    metrics_need_key: bool = Field(default=False, description="Whether /metrics needs a key too.")
