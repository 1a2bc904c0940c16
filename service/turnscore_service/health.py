"""Health: whether this process is starting, ready, without its models, restarting a part, or draining; and why."""

from dataclasses import dataclass, field
from typing import Literal

from turnscore_service import metrics
from turnscore_service.errors import NotReadyError

State = Literal["starting", "ready", "refused", "draining"]


@dataclass
class Health:
    """The state of one process; readers call `require_ready`."""

    state: State = "starting"
    reason: str = "the models are being loaded"
    _dead: set[str] = field(default_factory=set)

    def become(self, state: State, reason: str = "") -> None:
        """Changes the state; a draining process stays so."""
        if self.state == "draining":
            return
        self.state, self.reason = state, reason
        metrics.READY.set(self.is_ready)

    def lose(self, stage: str) -> None:
        """A stage has died: the process is not ready until `regain`."""
        self._dead.add(stage)
        metrics.READY.set(self.is_ready)

    def regain(self, stage: str) -> None:
        """The stage has proved that it works again."""
        self._dead.discard(stage)
        metrics.READY.set(self.is_ready)

    @property
    def is_ready(self) -> bool:
        """Whether load balancers should send requests here."""
        return self.state == "ready" and not self._dead

    def not_ready(self) -> NotReadyError:
        """The error that says why the process is not ready."""
        if self.state == "ready":
            return NotReadyError(f"restarting: {', '.join(sorted(self._dead))}", retry_after_ms=1000)
        return NotReadyError(f"{self.state}: {self.reason}", retry_after_ms=1000)
