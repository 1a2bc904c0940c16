"""Health: whether this process is starting, ready, without its models, restarting a part, or draining; and why."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from turnscore_core.errors import NotReadyError

from turnscore_service import metrics

State = Literal["starting", "ready", "refused", "draining"]


@dataclass(kw_only=True)
class Health:
    """The state of one process; readers look at `is_ready`."""

    state: State = "starting"
    reason: str = "the models are being loaded"
    _lost: dict[str, str] = field(default_factory=dict)
    _watchers: list[Callable[[], object]] = field(default_factory=list)

    def become(self, state: State, reason: str = "") -> None:
        """Changes the state; a draining process stays so."""
        if self.state == "draining":
            return
        self.state, self.reason = state, reason
        self._report()

    def lose(self, part: str, reason: str | None = None) -> None:
        """A part does not work, such as a stage that has died: the process is not ready until `regain`."""
        self._lost[part] = reason or f"restarting: {part}"
        self._report()

    def regain(self, part: str) -> None:
        """The part has checked that it works again."""
        self._lost.pop(part, None)
        self._report()

    def watch(self, on_change: Callable[[], object]) -> None:
        """Calls `on_change` after every change, in the thread, or the signal handler, that made it."""
        self._watchers.append(on_change)

    def _report(self) -> None:
        metrics.READY.set(self.is_ready)
        for on_change in self._watchers:
            on_change()

    @property
    def is_ready(self) -> bool:
        """Whether load balancers should send requests here."""
        return self.state == "ready" and not self._lost

    def not_ready(self) -> NotReadyError:
        """The error that says why the process is not ready."""
        if self.state == "ready":
            return NotReadyError("; ".join(self._lost.values()), retry_after_ms=1000)
        return NotReadyError(f"{self.state}: {self.reason}", retry_after_ms=1000)
