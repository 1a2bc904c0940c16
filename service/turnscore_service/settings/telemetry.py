"""Settings of telemetry: where OpenTelemetry's data go, and how much of it."""

from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from turnscore_service.settings.group import SettingsGroup


class TelemetrySettings(SettingsGroup):
    """Which calls are traced, and to which collector."""

    endpoint: str = Field(
        default="",
        description="OTLP collector, such as `http://collector:4318` (HTTP) or `http://collector:4317` (gRPC). "
        "Empty: nothing is recorded. The exporters also read OpenTelemetry's own `OTEL_EXPORTER_OTLP_*`, for "
        "certificates and compression.",
    )
    protocol: Literal["http", "grpc"] = Field(default="http", description="OTLP's protocol.")
    headers: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description='Headers of the export, as JSON: `{"authorization": "Basic ..."}`.',
    )
    sample_share: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.01,
        description="Share of calls that become a span, of those that come without `traceparent`. With one, its "
        "sampled flag decides. Chosen.",
    )
    events: Literal["off", "sampled", "all"] = Field(
        default="sampled",
        description="Which scores become `gen_ai.evaluation.result` log records: those of calls that are `sampled`, "
        "`all`, or none (`off`). Chosen: for all of them a call of one scorer costs 3 % more CPU (measured).",
    )
    service_name: Annotated[str, Field(min_length=1)] = Field(
        default="turnscore", description="`service.name` of all that is exported."
    )

    @field_validator("endpoint")
    @classmethod
    def _know_scheme(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise PydanticCustomError("endpoint", "must begin with http:// or https://")
        return value
