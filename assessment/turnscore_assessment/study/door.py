"""The study's door: HTTP requests to a worker's actions. Every answer is JSON or one of the page's files.

GET  /                   the page; its link's secret stands behind #, which browsers do not send
GET  /api/standing       the study, and where the worker stands
POST /api/agreement      -> standing       POST /api/begin          -> standing
POST /api/message        -> reply          POST /api/rating         -> standing
POST /api/giving-up      -> standing       POST /api/leaving        -> nothing
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from turnscore_assessment.study.chatbots import clean_text
from turnscore_assessment.study.guards import GuardedApp, read_fields, read_link
from turnscore_assessment.study.page_requests import Agreement, Message, Nothing, OneDialogue, Rating, read_body
from turnscore_assessment.study.refusals import Refusal, RefusedError
from turnscore_assessment.study.running import RunningStudy
from turnscore_assessment.study.workers import Worker

_PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/study.css": ("study.css", "text/css; charset=utf-8"),
    "/study.js": ("study.js", "text/javascript; charset=utf-8"),
    "/views.js": ("views.js", "text/javascript; charset=utf-8"),
    "/sliders.js": ("sliders.js", "text/javascript; charset=utf-8"),
}

Act = Callable[[RunningStudy, Worker, Any], Awaitable[dict[str, Any]]]
Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]


def create_study_app(study: RunningStudy, origins: Sequence[str], lifespan: Lifespan | None = None) -> ASGIApp:
    """The app of a study, which answers under these origins alone."""
    acts: dict[str, Act] = {
        "agreement": _agree,
        "begin": _begin,
        "message": _say,
        "rating": _rate,
        "giving-up": _give_up,
        "leaving": _leave,
    }
    routes = [_serve_file(path, *file) for path, file in _PAGE.items()]
    routes.append(Route("/api/standing", _serve_standing(study), methods=["GET"]))
    routes += [Route(f"/api/{name}", _serve_act(study, act, origins), methods=["POST"]) for name, act in acts.items()]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={RefusedError: _answer_refusal, HTTPException: _answer_http, Exception: _answer_fault},
    )
    app.router.redirect_slashes = False
    return GuardedApp(app, origins)


def _serve_file(path: str, name: str, media_type: str) -> Route:
    content = files(__package__).joinpath("page", name).read_bytes()

    async def serve(_request: Request) -> Response:
        return Response(content, media_type=media_type)

    return Route(path, serve, methods=["GET"])


def _serve_standing(study: RunningStudy) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        return JSONResponse(await study.show(await study.identify(read_link(request))))

    return serve


def _serve_act(study: RunningStudy, act: Act, origins: Sequence[str]) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        fields = await read_fields(request, origins, study.plan.chat.input_characters)
        worker = await study.identify(read_link(request))
        return JSONResponse(await act(study, worker, fields))

    return serve


async def _agree(study: RunningStudy, worker: Worker, fields: Any) -> dict[str, Any]:
    await study.agree(worker, read_body(Agreement, fields).consent_hash)
    return await study.show_again(worker)


async def _begin(study: RunningStudy, worker: Worker, fields: Any) -> dict[str, Any]:
    read_body(Nothing, fields)
    await study.begin(worker)
    return await study.show_again(worker)


async def _say(study: RunningStudy, worker: Worker, fields: Any) -> dict[str, Any]:
    message = read_body(Message, fields)
    return {"reply": await study.say(worker, message.dialogue, message.number, message.text)}


async def _rate(study: RunningStudy, worker: Worker, fields: Any) -> dict[str, Any]:
    rating = read_body(Rating, fields)
    await study.rate(worker, rating.dialogue, rating.ratings)
    return await study.show_again(worker)


async def _give_up(study: RunningStudy, worker: Worker, fields: Any) -> dict[str, Any]:
    await study.give_up(worker, read_body(OneDialogue, fields).dialogue)
    return await study.show_again(worker)


async def _leave(study: RunningStudy, worker: Worker, fields: Any) -> dict[str, Any]:
    read_body(Nothing, fields)
    await study.leave(worker)
    return {}


async def _answer_refusal(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    return _refuse(error.refusal, str(error))


async def _answer_http(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _refuse(Refusal.NO_SUCH_METHOD if error.status_code == 405 else Refusal.NO_SUCH_PAGE)


async def _answer_fault(_request: Request, _error: Exception) -> Response:
    """Logs the error without a worker's text: the database hides the values of statements."""
    return _refuse(Refusal.BROKEN)


def _refuse(refusal: Refusal, sentence: str = "") -> Response:
    error = {"code": refusal.code, "message": clean_text(sentence or refusal.sentence)}
    return JSONResponse({"error": error}, status_code=refusal.status)
