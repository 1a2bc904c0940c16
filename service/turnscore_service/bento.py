"""The BentoML service: life cycle, readiness and workers. Hands every request to the API."""

import asyncio
import logging
import os
import sys
from pathlib import Path

import bentoml
from starlette.types import ASGIApp, Receive, Scope, Send
from turnscore_models.manifest import BundleNotFoundError, UnknownKindError

from turnscore_service._patches.bentoml_metrics import VARIABLE, FullDiskError, refuse_full_disk
from turnscore_service._patches.circus_hangup import handle_hangup
from turnscore_service._patches.uvicorn_websocket import install_protocols
from turnscore_service.api.grpc.server import GrpcServer, UnusableCertificateError
from turnscore_service.api.http.app import create_app
from turnscore_service.api.http.exchange import serving_with
from turnscore_service.auth.access import UnusableKeysError
from turnscore_service.lifecycle import signals
from turnscore_service.lifecycle.admin import AdminSocket, UnusableFolderError, prepare_folder, unusable
from turnscore_service.lifecycle.loading import WrongSettingError, find_offer
from turnscore_service.lifecycle.process import is_last_ready, served_url
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.log_setup import set_up_logging
from turnscore_service.settings.service import Settings, read_settings
from turnscore_service.telemetry.recorder import MissingExporterError, require_exporter


def _prepare(settings: Settings) -> tuple[Runtime, GrpcServer]:
    """What this process runs, or its end with a sentence that names the files at fault."""
    try:
        refuse_full_disk()
        require_exporter(settings.telemetry)
        if settings.admin.folder is not None:
            prepare_folder(settings.admin.folder)
        offer = find_offer(settings)
        runtime = Runtime(settings)
        runtime.access.expect(offer)
        return runtime, GrpcServer(runtime)
    except FullDiskError as error:
        sys.exit(f"BENTOML_HOME: {error}")
    except MissingExporterError as error:
        sys.exit(f"TURNSCORE_TELEMETRY__ENDPOINT: {error}")
    except UnusableFolderError as error:
        sys.exit(unusable(error))
    except UnusableKeysError as error:
        sys.exit(f"TURNSCORE_AUTH__KEYS{'_FILE' if settings.auth.keys_file else ''}: {error}")
    except (BundleNotFoundError, UnknownKindError, WrongSettingError) as error:
        sys.exit(str(error))
    except UnusableCertificateError as error:
        sys.exit(f"TURNSCORE_GRPC__TLS_CERT_FILE: {error}")


# uvicorn would believe anybody on this machine about whom they forward; `trusted_proxies` is asked instead.
os.environ.setdefault("FORWARDED_ALLOW_IPS", "")
if not signals.is_worker():
    signals.explain_taken_address()
    handle_hangup(signals.hang_up_children)
_SUPERVISOR = os.getppid()
_SETTINGS = read_settings()
set_up_logging(_SETTINGS.log_level)  # BentoML has set its own up before; so its supervisor's lines are JSON too
_RUNTIME, _GRPC = _prepare(_SETTINGS)
_API = create_app(_RUNTIME)
install_protocols(serving_with(_SETTINGS, _API))
_LOGGER = logging.getLogger("turnscore.bento")


def _announce(worker: int) -> None:
    """The line with which a start ends; of several workers, the last that is ready writes it."""
    if not signals.is_worker() or is_last_ready(worker, _SETTINGS.workers, Path(os.environ[VARIABLE])):
        url = served_url(str(_SETTINGS.http.host), _SETTINGS.http.port)
        _LOGGER.info("turnscore is ready: %s", url, extra={"url": url})


async def _open_admin_socket(worker: int) -> AdminSocket | None:
    """This worker's socket, where there are any; one that cannot be opened ends the process with a sentence."""
    folder, switch = _SETTINGS.admin.folder, _RUNTIME.switch
    if folder is None or switch is None:
        return None
    admin = AdminSocket(folder, worker, switch)
    try:
        await admin.start()
    except UnusableFolderError as error:
        sys.exit(unusable(error))
    return admin


class ApiMiddleware:
    """Sends every request straight to the API, so that all paths, /livez too, have one error shape.

    Not used under `bentoml serve` (`install_protocols`); other ASGI servers call it for every request.
    """

    def __init__(self, app: ASGIApp, api: ASGIApp) -> None:
        self._app = app
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """BentoML keeps the life cycle; everything else is the API's."""
        await (self._app if scope["type"] == "lifespan" else self._api)(scope, receive, send)


@bentoml.service(
    name="turnscore",
    workers=_SETTINGS.workers,
    # Deadlines are ours; BentoML's timeout only catches what should never happen.
    traffic={"timeout": 3600},
    # Measured by others as most of BentoML's cost, or with unbounded label values: ours stand in for them.
    metrics={"enabled": False},
    http={"host": str(_SETTINGS.http.host), "port": _SETTINGS.http.port},
    logging={"access": {"enabled": False}},
    tracing={"excluded_urls": ".*"},
)
class TurnScore:
    """Scores dialogue turns."""

    @bentoml.on_startup  # type: ignore[untyped-decorator]
    async def start(self) -> None:
        worker = (bentoml.server_context.worker_index or 1) - 1
        _RUNTIME.start(worker=worker, on_ready=lambda: _announce(worker))
        await _GRPC.start()
        signals.reload_on_hangup(_RUNTIME.reload)
        self._admin = await _open_admin_socket(worker)
        signals.drain_before_stopping(
            _RUNTIME.begin_drain, _RUNTIME.end_conversations, _SETTINGS.drain_seconds, _SETTINGS.shutdown_seconds
        )
        self._watching = asyncio.create_task(signals.end_with(_SUPERVISOR)) if signals.is_worker() else None

    @bentoml.on_shutdown  # type: ignore[untyped-decorator]
    async def stop(self) -> None:
        """Lets work in flight finish."""
        if self._watching is not None:
            self._watching.cancel()
        if self._admin is not None:
            await self._admin.stop()
        await _GRPC.stop()
        await _RUNTIME.stop()


TurnScore.add_asgi_middleware(ApiMiddleware, api=_API)  # type: ignore[attr-defined]
