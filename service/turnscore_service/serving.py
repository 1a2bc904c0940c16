"""`turnscore serve`: one process that serves, without a supervisor. Containers, pods and systemd start a new one.

BentoML's supervisor looks every ten seconds whether its worker lives, holds the port meanwhile, and lets callers wait
in its backlog. Without it the port closes with the process, and whoever runs the process knows at once.
"""

import os
import signal
import socket
import sys
from typing import NoReturn

from turnscore_core.inference.onnx_backend import DeviceError, load_onnxruntime

from turnscore_service.settings.service import read_settings


def serve() -> None:
    """Start the service configured by the TURNSCORE_* variables; several workers run under BentoML's supervisor."""
    # The server raises SIGTERM once more when it has ended well. As a container's first process we would not get it.
    signal.signal(signal.SIGTERM, _end)
    settings = read_settings()
    os.environ.setdefault("BENTOML_DO_NOT_TRACK", "True")  # no usage reports, unless they were asked for
    try:
        load_onnxruntime()
    except DeviceError as error:
        sys.exit(f"turnscore: {error}")
    if settings.workers > 1:
        # Becomes `bentoml serve`, which reads host and port from the same settings.
        command = [sys.executable, "-m", "bentoml", "serve", "turnscore_service.bento:TurnScore"]
        os.execv(sys.executable, command)  # noqa: S606 our own interpreter, without a shell
    listener = bind(str(settings.http.host), settings.http.port)
    import uvicorn

    from turnscore_service.bento import TurnScore

    config = uvicorn.Config(
        TurnScore.to_asgi(is_main=True),  # type: ignore[attr-defined]
        log_config=None,
        # Between two requests of a connection; `bentoml serve --timeout-keep-alive` by default (docs/security.md).
        timeout_keep_alive=5,
        server_header=False,
    )
    uvicorn.Server(config).run(sockets=[listener])


def _end(_number: int, _frame: object) -> NoReturn:
    sys.exit(0)


def bind(host: str, port: int) -> socket.socket:
    """A socket at that address; connections are taken once the server runs. Ends the process where none can be had."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        variables = "TURNSCORE_HTTP__HOST, TURNSCORE_HTTP__PORT"
        sys.exit(f"turnscore cannot listen on {host}, port {port} ({variables}): {reason}")
    return listener
