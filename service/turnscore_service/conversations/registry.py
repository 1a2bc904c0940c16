"""The registry of one process's live conversations: their number and their end."""

from collections.abc import Callable

from turnscore_core.errors import NotReadyError, OverloadedError

from turnscore_service import metrics
from turnscore_service.conversations.session import Channel, LiveConversation
from turnscore_service.scheduling.executor import OpenWork
from turnscore_service.scheduling.fairness import CooperativeScheduler
from turnscore_service.scheduling.pipeline import ScoringPipeline
from turnscore_service.scheduling.slow_requests import SlowLog
from turnscore_service.settings.service import Settings
from turnscore_service.telemetry.recorder import CallTrace

_RETRY_MS = 1000  # advice to a caller for whom there is no conversation at this moment


class ConversationRegistry:
    """Belongs to one event loop."""

    def __init__(self, settings: Settings, cooperative: CooperativeScheduler) -> None:
        self._settings, self._cooperative = settings, cooperative
        self._slow = SlowLog(settings.log_slow_seconds)
        self._open: set[LiveConversation] = set()
        self._held = OpenWork()
        self._is_draining = False

    def require_room(self) -> None:
        """Raises NotReadyError on a draining process, OverloadedError if the most conversations are open."""
        if self._is_draining:
            raise NotReadyError("draining: the service is shutting down", retry_after_ms=_RETRY_MS)
        if len(self._open) >= self._settings.conversations.max_open:
            raise OverloadedError("this service has as many open conversations as it may", retry_after_ms=_RETRY_MS)

    async def hold(
        self, pipeline: Callable[[], ScoringPipeline], channel: Channel, request_id: str, trace: CallTrace | None = None
    ) -> None:
        """Answers one conversation until its caller has sent everything, each turn by the `pipeline` of its moment.

        Raises CallerLeftError when they left before, what `require_room` raises, and whatever else ends it: the
        error of a refused opening, TooLargeError beyond its bytes, DeadlineExceededError where nothing arrived for
        too long, NotReadyError when the process ends.
        """
        self.require_room()
        live = LiveConversation(pipeline, channel, request_id, self._settings, self._cooperative, self._slow, trace)
        with self._held, metrics.OPEN_CONVERSATIONS.track_inprogress():
            self._open.add(live)
            try:
                await live.run()
            finally:
                self._open.discard(live)

    def begin_drain(self) -> None:
        """Warns every conversation that the process is shutting down; further ones are refused."""
        self._is_draining = True
        for conversation in self._open:
            conversation.announce_draining()

    def end(self) -> None:
        """Takes no more messages; what was taken is answered, then the conversations end."""
        for conversation in self._open:
            conversation.end(NotReadyError("draining: the service is shutting down", retry_after_ms=_RETRY_MS))

    async def wait_until_empty(self) -> None:
        await self._held.wait_until_none()
