"""A running study, its HTTP API and web server. Every answer is JSON or one of the page's files, with security headers.

GET  /                   the page; its link's secret stands behind #, which browsers do not send
GET  /api/standing       the study, and where the worker stands
POST /api/agreement      -> standing       POST /api/begin          -> standing
POST /api/message        -> reply          POST /api/rating         -> standing
POST /api/giving-up      -> standing       POST /api/leaving        -> nothing
"""

import asyncio
import contextlib
import json
import logging
import random
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from ipaddress import ip_address
from typing import Annotated, Any, ClassVar, TypeVar
from urllib.parse import urlsplit

import h11
import uvicorn
from pydantic import Field, StrictFloat, StrictInt, StrictStr, ValidationError
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from turnscore_assessment.errors import AssessmentError
from turnscore_assessment.files import StrictForm, describe_problem
from turnscore_assessment.ratings.rating_file import find_misrating
from turnscore_assessment.study import workers
from turnscore_assessment.study.chatbots import ChatbotError, Chatbots, clean_text
from turnscore_assessment.study.database import StudyDatabase
from turnscore_assessment.study.plan import StudyPlan
from turnscore_assessment.study.recordings import BlindScorer, Recordings, make_scoring, read_recordings
from turnscore_assessment.study.workers import RefusedError, StudyRefusal, Worker

_log = logging.getLogger(__name__)


DialogueId = Annotated[StrictStr, Field(min_length=1, max_length=40, pattern=r"^[a-z0-9]+$")]

Body = TypeVar("Body", bound=StrictForm)


class ConsentRequest(StrictForm):
    """The worker agrees to the text with this hash."""

    consent_hash: Annotated[StrictStr, Field(pattern=r"^[0-9a-f]{64}$")]


class MessageRequest(StrictForm):
    """The worker's message `number`, from 0."""

    dialogue: DialogueId
    number: Annotated[StrictInt, Field(ge=0, le=1000)]
    text: StrictStr


class RatingRequest(StrictForm):
    """The ratings of a dialogue, by criterion."""

    dialogue: DialogueId
    ratings: Annotated[dict[StrictStr, StrictFloat], Field(max_length=50)]


class GiveUpRequest(StrictForm):
    dialogue: DialogueId


def read_body(form: type[Body], fields: Any) -> Body:
    """The body in its form; RefusedError (INVALID) names the field."""
    try:
        return form.model_validate(fields)
    except ValidationError as error:
        raise RefusedError(StudyRefusal.INVALID, describe_problem(error)) from None


def check_text(text: str, plan: StudyPlan) -> str:
    """The message as it is stored; RefusedError (INVALID) where it is empty or too long."""
    cleaned = clean_text(text).strip()
    if not cleaned:
        raise RefusedError(StudyRefusal.INVALID, "text: must not be empty")
    if len(cleaned) > plan.chat.input_characters:
        raise RefusedError(StudyRefusal.INVALID, f"text: may have at most {plan.chat.input_characters} characters")
    return cleaned


def check_ratings(ratings: Mapping[str, float], plan: StudyPlan) -> dict[str, float]:
    """A number for every criterion, in its range, in the plan's order; RefusedError (INVALID) names the criterion."""
    if reason := find_misrating(plan.description, ratings):
        raise RefusedError(StudyRefusal.INVALID, reason)
    return {name: ratings[name] for name in plan.description.names}


@dataclass(frozen=True)
class RunningStudy:
    """A study with its database and its systems. Every method raises RefusedError for a forbidden action."""

    plan: StudyPlan
    database: StudyDatabase
    chatbots: Chatbots
    recordings: Recordings
    on_rating: Callable[[], None] = lambda: None
    now: Callable[[], float] = time.time
    generator: random.Random = field(default_factory=secrets.SystemRandom)

    async def identify(self, link: str) -> Worker:
        """The worker of the link."""
        parsed = workers.parse_link(link)
        if parsed is None:
            raise RefusedError(StudyRefusal.UNKNOWN_LINK)
        return await self.database.read(workers.find_worker, self.database.study_id, parsed)

    async def show(self, worker: Worker) -> dict[str, Any]:
        """The study, and where the worker stands, whose study may have ended since."""
        worker = await self.database.read(workers.read_worker, worker.id)
        standing = await self.database.read(workers.find_standing, worker.id)
        recorded = None
        if standing.open is not None and standing.open.recorded is not None:
            recorded = self.recordings.find(standing.open.system, standing.open.recorded)
            if recorded is None:
                _log.error("system %r: dialogue %r is gone", standing.open.system, standing.open.recorded)
                raise RefusedError(StudyRefusal.BROKEN)
        return {"study": workers.show_study(self.plan), **workers.show_standing(self.plan, worker, standing, recorded)}

    async def agree(self, worker: Worker, consent_hash: str) -> None:
        """Records the worker's agreement to the text with that hash, and assigns dialogues."""
        if consent_hash != workers.hash_consent(self.plan):
            raise RefusedError(StudyRefusal.TEXT_CHANGED)
        await self.database.run(
            workers.agree,
            self.database.study_id,
            worker.id,
            self.plan,
            self.recordings.names,
            consent_hash,
            self.now(),
            self.generator,
        )

    async def begin(self, worker: Worker) -> None:
        """Opens the worker's next dialogue, unless one is open."""
        await self.database.run(workers.open_next, self.database.study_id, worker.id, self.plan, self.now())

    async def say(self, worker: Worker, dialogue_id: str, number: int, text: str) -> str:
        """The system's reply to the worker's message; a repeated message gets the same reply."""
        dialogue = await self.database.run(
            workers.take_message, worker.id, dialogue_id, number, check_text(text, self.plan), self.plan, self.now()
        )
        if len(dialogue.texts) > 2 * number + 1:
            return dialogue.texts[2 * number + 1]
        system = next(each for each in self.plan.systems if each.name == dialogue.system)
        try:
            reply = await self.chatbots.reply(system, dialogue.texts, dialogue_id)
        except ChatbotError as error:
            _log.warning("system %r gave no reply: %s", dialogue.system, error)
            await self.database.run(workers.note_failure, dialogue_id)
            raise RefusedError(StudyRefusal.NO_REPLY) from None
        except Exception:
            await self.database.run(workers.note_failure, dialogue_id)  # the message can be asked again at once
            raise
        await self.database.run(workers.store_reply, dialogue_id, number, reply, self.now())
        return reply

    async def rate(self, worker: Worker, dialogue_id: str, ratings: dict[str, float]) -> None:
        """Stores the ratings of a dialogue and ends it."""
        checked = check_ratings(ratings, self.plan)
        await self.database.run(workers.rate, worker.id, dialogue_id, checked, self.plan, self.now())
        self.on_rating()

    async def give_up(self, worker: Worker, dialogue_id: str) -> None:
        """Ends a dialogue whose chatbot fails again and again, unrated."""
        await self.database.run(workers.give_up, worker.id, dialogue_id, self.now())

    async def leave(self, worker: Worker) -> None:
        """Deletes everything that the worker said and rated."""
        await self.database.run(workers.leave, worker.id, self.now())
        await self.database.erase()


BODY_SECONDS = 15.0  # Seconds for a whole body. Chosen: a slow phone sends a thousand characters in one.
LEAST_BODY_BYTES = 100_000  # Smallest limit of a body: 50 ratings with long names.
BYTES_PER_CHARACTER = 12  # Bytes of a character outside of the basic plane, as JSON escapes it.

_SECURITY = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "X-Robots-Tag": "noindex, nofollow",
    "Cache-Control": "no-store",
}


class GuardedApp:
    """The app behind its host check, with the security headers on every answer, errors included."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self._app = app
        self._hosts = {urlsplit(origin).netloc.lower() for origin in origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_SECURITY)
            await send(message)

        if Headers(scope=scope).get("host", "").lower() not in self._hosts:
            refusal = PlainTextResponse("This server does not answer under that name.\n", 421)
            await refusal(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)


async def read_fields(request: Request, origins: Sequence[str], input_characters: int) -> Any:
    """The JSON body of a request of this study's page. RefusedError: FOREIGN_ORIGIN, NOT_JSON, TOO_LARGE, INVALID."""
    if request.headers.get("origin") not in origins:
        raise RefusedError(StudyRefusal.FOREIGN_ORIGIN)
    if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise RefusedError(StudyRefusal.FOREIGN_ORIGIN)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RefusedError(StudyRefusal.NOT_JSON)
    body = await _read_body(request, max(LEAST_BODY_BYTES, BYTES_PER_CHARACTER * input_characters + 1000))
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise RefusedError(StudyRefusal.INVALID, "the body is not JSON") from None


def read_link(request: Request) -> str:
    """The link in the request's header; it is never in an address. Raises RefusedError: UNKNOWN_LINK."""
    scheme, _, link = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise RefusedError(StudyRefusal.UNKNOWN_LINK)
    return link.strip()


async def _read_body(request: Request, most: int) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.stream():
                body += piece
                if len(body) > most:
                    raise RefusedError(StudyRefusal.TOO_LARGE)
    except (TimeoutError, ClientDisconnect):
        raise RefusedError(StudyRefusal.INVALID, "the body did not arrive") from None
    return bytes(body)


_PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/study.css": ("study.css", "text/css; charset=utf-8"),
    "/study.js": ("study.js", "text/javascript; charset=utf-8"),
    "/views.js": ("views.js", "text/javascript; charset=utf-8"),
    "/sliders.js": ("sliders.js", "text/javascript; charset=utf-8"),
}

Act = Callable[[RunningStudy, Worker, Any], Awaitable[str | None]]
# What a worker does, by the path's last part: the request's form, and the study's method.
ACTS: dict[str, tuple[type[StrictForm], Act]] = {
    "agreement": (ConsentRequest, lambda study, worker, body: study.agree(worker, body.consent_hash)),
    "begin": (StrictForm, lambda study, worker, _: study.begin(worker)),
    "message": (MessageRequest, lambda study, worker, body: study.say(worker, body.dialogue, body.number, body.text)),
    "rating": (RatingRequest, lambda study, worker, body: study.rate(worker, body.dialogue, body.ratings)),
    "giving-up": (GiveUpRequest, lambda study, worker, body: study.give_up(worker, body.dialogue)),
    "leaving": (StrictForm, lambda study, worker, _: study.leave(worker)),
}
NEEDS_NO_CONSENT = ("agreement", "leaving")
Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]


def create_study_app(study: RunningStudy, origins: Sequence[str], lifespan: Lifespan | None = None) -> ASGIApp:
    """The app of a study, which answers under these origins alone."""
    routes = [_serve_file(path, *file) for path, file in _PAGE.items()]
    routes.append(Route("/api/standing", partial(_show_standing, study), methods=["GET"]))
    routes += [Route(f"/api/{name}", partial(_act, study, name, origins), methods=["POST"]) for name in ACTS]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers=dict.fromkeys((RefusedError, HTTPException, Exception), _answer_error),
    )
    app.router.redirect_slashes = False
    return GuardedApp(app, origins)


def _serve_file(path: str, name: str, media_type: str) -> Route:
    content = files(__package__).joinpath("page", name).read_bytes()

    async def serve(_request: Request) -> Response:
        return Response(content, media_type=media_type)

    return Route(path, serve, methods=["GET"])


async def _show_standing(study: RunningStudy, request: Request) -> Response:
    return JSONResponse(await study.show(await study.identify(read_link(request))))


async def _act(study: RunningStudy, name: str, origins: Sequence[str], request: Request) -> Response:
    form, act = ACTS[name]
    fields = await read_fields(request, origins, study.plan.chat.input_characters)
    worker, body = await study.identify(read_link(request)), read_body(form, fields)
    if worker.consent_hash is None and name not in NEEDS_NO_CONSENT:
        raise RefusedError(StudyRefusal.NOT_AGREED)
    reply = await act(study, worker, body)
    if name == "message":
        return JSONResponse({"reply": reply})
    return JSONResponse({} if name == "leaving" else await study.show(worker))


async def _answer_error(_request: Request, error: Exception) -> Response:
    """A fault is logged without a worker's text: the database hides the values of statements."""
    if isinstance(error, RefusedError):
        return _refuse(error.refusal, str(error))
    if isinstance(error, HTTPException):
        return _refuse(StudyRefusal.NO_SUCH_METHOD if error.status_code == 405 else StudyRefusal.NO_SUCH_PAGE)
    return _refuse(StudyRefusal.BROKEN)


def _refuse(refusal: StudyRefusal, sentence: str = "") -> Response:
    error = {"code": refusal.code, "message": clean_text(sentence or refusal.sentence)}
    return JSONResponse({"error": error}, status_code=refusal.status)


class TimedProtocol(H11Protocol):
    """A connection that ends when a request takes longer to arrive than a whole body may.

    uvicorn waits for ever for a request's first byte, its headers and its body, so that silent callers could hold every
    connection.
    """

    # Seconds: above the time after which a slow body is refused with a reason.
    request_seconds: ClassVar[float] = BODY_SECONDS + 5

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
        scores = BlindScorer(database, recordings, score)

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
        # Beyond these the server answers 503. Chosen: twenty times the default of dialogues that may be open.
        limit_concurrency=2000,
        timeout_keep_alive=20,
        # Seconds for replies under way when the server stops. Chosen: above the default of `reply_seconds`.
        timeout_graceful_shutdown=40,
        ws="none",
    )
