"""Serving a study: its parts put together, and the web server around them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from ipaddress import ip_address
from typing import ClassVar
from urllib.parse import urlsplit

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from turnscore_assessment.errors import AssessmentError
from turnscore_assessment.study.chatbots import Chatbots
from turnscore_assessment.study.database import StudyDatabase
from turnscore_assessment.study.door import create_study_app
from turnscore_assessment.study.guards import BODY_SECONDS
from turnscore_assessment.study.plan import StudyPlan
from turnscore_assessment.study.recordings import read_recordings
from turnscore_assessment.study.running import RunningStudy
from turnscore_assessment.study.unseen_scores import UnseenScores, make_scoring

MOST_CONNECTIONS = 2000
"""Connections beyond which the server answers 503. Chosen: twenty times the default of dialogues that may be open."""
DRAIN_SECONDS = 40
"""Seconds for replies under way when the server stops. Chosen: above the default of `reply_seconds`."""


class TimedProtocol(H11Protocol):
    """A connection that ends when a request takes longer to arrive than a whole body may.

    uvicorn waits for ever for a request's first byte, its headers and its body, so that silent callers could hold every
    connection.
    """

    request_seconds: ClassVar[float] = BODY_SECONDS + 5
    """Seconds: above the time after which a slow body is refused with a reason."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The time for the first request begins."""
        super().connection_made(transport)
        self._await_request()

    def data_received(self, data: bytes) -> None:
        """The time ends with the request's last byte; it begins again with the next request's first."""
        super().data_received(data)
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._await_request()
        else:
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is left waiting."""
        self._stop()
        super().connection_lost(exc)

    def _await_request(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.request_seconds, self.transport.abort)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class BadAddressError(AssessmentError):
    """The study cannot be served under that address."""


def list_origins(host: str, port: int, public_url: str | None) -> list[str]:
    """The origins of the study's page, the one for links first. BadAddressError for an address that cannot be one.

    Without a public URL only this machine reaches the study, under all of its local names.
    """
    if public_url is not None:
        parts = urlsplit(public_url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
            raise BadAddressError("--public-url: must be like https://study.example.org, without a path")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise BadAddressError("--public-url: must be like https://study.example.org, with nothing behind it")
        return [f"{parts.scheme}://{parts.netloc.lower()}"]
    if not is_loopback(host):
        raise BadAddressError(
            f"--host {host}: others can reach the study there, so --public-url must say under which address"
        )
    return [f"http://{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def build_app(plan: StudyPlan, database: StudyDatabase, origins: list[str]) -> ASGIApp:
    """The app of the study, which also asks turnscore for scores if the plan names a service."""
    recordings = read_recordings(plan)
    chatbots = Chatbots(plan)
    client, scores = None, None
    if plan.turnscore is not None:
        client, score = make_scoring(plan.turnscore)
        scores = UnseenScores(database, recordings, score)

    @contextlib.asynccontextmanager
    async def live(_app: Starlette) -> AsyncIterator[None]:
        scoring = asyncio.create_task(scores.run()) if scores else None
        try:
            yield
        finally:
            if scoring is not None:
                scoring.cancel()
                await asyncio.gather(scoring, return_exceptions=True)
            if client is not None:
                await client.aclose()
            await chatbots.close()
            database.close()

    on_rating = scores.wake if scores else lambda: None
    study = RunningStudy(plan, database, chatbots, recordings, on_rating=on_rating)
    return create_study_app(study, origins, live)


def run_server(app: ASGIApp, host: str, port: int) -> None:
    """Serves until SIGINT or SIGTERM. Keeps no log of requests."""
    uvicorn.run(
        app,
        host=host,
        port=port,
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        http=TimedProtocol,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=20,
        timeout_graceful_shutdown=DRAIN_SECONDS,
        ws="none",
    )
