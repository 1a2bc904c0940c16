"""Findings: everything one run measured, and what it could not, with the reason. Goes to JSON and back."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Start:
    """What it takes until a model can answer."""

    model: str
    graph_bytes: int
    export_seconds: float
    open_seconds: float
    first_run_seconds: float
    device_bytes: int | None
    """Device memory taken by weights and the first run; None where nobody reports it."""


@dataclass(frozen=True, kw_only=True)
class RowSpeed:
    """Rows of one length in batches of one size."""

    model: str
    way: str
    rows: int
    tokens: int
    batch_ms: float
    """Median, from arrays here to arrays here."""
    rows_per_second: float
    operations_per_second: float


@dataclass(frozen=True, kw_only=True)
class FedSpeed:
    """One turn with so many qualities."""

    model: str
    qualities: int
    way: str
    passes: int
    tokens: int
    p50_ms: float
    p99_ms: float
    operations_per_second: float | None = None


@dataclass(frozen=True, kw_only=True)
class Served:
    """The real service under one load."""

    model: str
    load: str
    clients: int
    turns_per_request: int
    turn_tokens: int
    workers: int
    turns_per_second: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    refused: int
    failed: int
    bare_turns_per_second: float | None = None
    """Of the bare runtime on the same turns in its best batches."""

    @property
    def over_bare(self) -> float | None:
        """Time a turn, over the bare runtime's."""
        if self.bare_turns_per_second is None or not self.turns_per_second:
            return None
        return self.bare_turns_per_second / self.turns_per_second


@dataclass(frozen=True, kw_only=True)
class ServiceStart:
    """What it takes until the service is ready."""

    model: str
    workers: int
    ready_seconds: float
    device_bytes: int | None


@dataclass(kw_only=True)
class Findings:
    """Everything that was found."""

    conditions: dict[str, Any] = field(default_factory=dict)
    peaks: dict[str, float] = field(default_factory=dict)
    """Operations a second of matmuls: measured by type, and `nominal` where the device is known."""
    starts: list[Start] = field(default_factory=list)
    rows: list[RowSpeed] = field(default_factory=list)
    fed: list[FedSpeed] = field(default_factory=list)
    service_starts: list[ServiceStart] = field(default_factory=list)
    served: list[Served] = field(default_factory=list)
    not_run: dict[str, str] = field(default_factory=dict)

    def attempt(self, what: str, run: Callable[[], None]) -> None:
        """Runs one part; what stops it is kept as the reason, and the parts that follow are run."""
        try:
            run()
        except Exception as error:  # a benchmark on a machine nobody has seen: every reason is worth reporting
            self.not_run[what] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"

    def write(self, path: Path) -> None:
        """Writes the JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
