"""Load settings: which bundles are loaded, and on what they run."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, JsonValue, NonNegativeInt, PositiveInt
from pydantic_core import PydanticCustomError


def _know_device(value: str) -> str:
    if not re.fullmatch(r"auto|cpu|cuda|cuda:\d{1,2}(,cuda:\d{1,2})*", value):
        raise PydanticCustomError("device", "must be auto, cpu, cuda, cuda:N or a list such as cuda:0,cuda:1")
    return value


DeviceName = Annotated[str, AfterValidator(_know_device)]

# Holds 500 conversations: three context texts at 18 kB on average, and 54 kB at most, with quality's int8 graph.
KEPT_VECTOR_BYTES = 128 * 1024**2


class LoadSettings(BaseModel):
    """Read-only; the service's settings of the same names describe each."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    models: tuple[str, ...] = ()  # references and folders; the starter bundles where there are none
    # Options that replace those of the bundles, by scorer.
    options: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    # Thresholds that replace those of the bundles, by scorer.
    thresholds: dict[str, FiniteFloat | None] = Field(default_factory=dict)
    device: DeviceName = "auto"
    gpu_memory_share: Annotated[float, Field(gt=0, le=1)] = 0.8
    threads: NonNegativeInt = 0  # for one batch; 0: measured
    concurrent_batches: NonNegativeInt = 0  # batches of one scorer at once; 0: CPUs divided by threads.
    max_batch_tokens: NonNegativeInt = 0  # padding included; 0: the device's default
    # For vectors of texts that were read, in this process; 0: none are kept.
    kept_vector_bytes: NonNegativeInt = KEPT_VECTOR_BYTES
    workers: PositiveInt = 1  # processes that share this machine's CPUs and devices
