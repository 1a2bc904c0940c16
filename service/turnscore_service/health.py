"""Health: whether this process is starting, ready, refused its models, or draining. One word and one reason."""

from dataclasses import dataclass
from typing import Literal

from turnscore_service import metrics
from turnscore_service.errors import NotReadyError

State = Literal["starting", "ready", "refused", "draining"]


@dataclass
class Health:
    """The state of one process; readers call `require_ready`."""

    state: State = "starting"
    reason: str = "the models are being loaded"

    def become(self, state: State, reason: str = "") -> None:
        """Changes the state; a draining process stays so."""
        if self.state == "draining":
            return
        self.state, self.reason = state, reason
        metrics.READY.set(state == "ready")

    @property
    def is_ready(self) -> bool:
        """Whether load balancers should send requests here."""
        return self.state == "ready"

    def not_ready(self) -> NotReadyError:
        """The error that says why the process is not ready."""
        return NotReadyError(f"{self.state}: {self.reason}", retry_after_ms=1000)
