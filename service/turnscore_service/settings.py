"""Settings: the only place that reads the environment. Every variable is `TURNSCORE_` + field, `__` for a level."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, PositiveFloat, PositiveInt, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from turnscore_wire import Limits


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RuntimeSettings(_Group):
    """How ONNX Runtime is used."""

    threads: Annotated[int, Field(ge=0)] = Field(
        default=0, description="Threads for one batch; 0 takes every CPU the process may use (affinity, cgroup)."
    )


class BatchingSettings(_Group):
    """How turns are put into batches."""

    max_batch_tokens: PositiveInt = Field(
        default=4096,
        description="Tokens in one batch, padding included. Chosen.",
    )
    max_padding_share: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.3,
        description="Share of a batch that may be padding which its turns would not have one by one; chosen.",
    )


class AdmissionSettings(_Group):
    """How much work may be in flight before more is refused."""

    max_items: PositiveInt = Field(default=1024, description="Turns times scorers in flight.")
    max_tokens: PositiveInt = Field(default=131_072, description="Estimated tokens in flight.")


class Settings(BaseSettings):
    """Everything that can be set. A wrong value stops the start with a sentence that names the variable."""

    model_config = SettingsConfigDict(env_prefix="TURNSCORE_", env_nested_delimiter="__", frozen=True, extra="ignore")

    models: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Bundles to load, separated by commas: `name`, `name:version` or `name:latest` in the model "
        "store or among the starter bundles, or the path of a folder (with a `/`). All starter bundles when empty.",
    )
    workers: PositiveInt = Field(default=1, description="Worker processes; each loads every model.")
    default_deadline_ms: PositiveInt = Field(
        default=10_000, description="Deadline of a request that names none, in milliseconds."
    )
    drain_seconds: Annotated[float, Field(ge=0)] = Field(
        default=1.0,
        description="Seconds between SIGTERM, when /readyz turns 503, and the moment new connections are refused. "
        "Longer than your load balancer's check interval loses no request.",
    )
    shutdown_seconds: PositiveFloat = Field(
        default=30.0, description="Seconds that work in flight gets to finish after that."
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(default="INFO", description="Least level logged.")
    log_requests: bool = Field(
        default=False, description="Whether every request is logged (never its text); failures always are."
    )
    options: dict[str, dict[str, JsonValue]] = Field(
        default_factory=dict,
        description="Options over those of the bundles, by kind, as JSON: "
        '`{"fed": {"own_qualities": {"funny": {"positive": ["haha"], "negative": ["I don\'t get it."]}}}}`.',
    )
    limits: Limits = Field(default_factory=Limits, description="What one request may carry.")
    runtime: RuntimeSettings = Field(default_factory=RuntimeSettings)
    batching: BatchingSettings = Field(default_factory=BatchingSettings)
    admission: AdmissionSettings = Field(default_factory=AdmissionSettings)

    @field_validator("models", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value
