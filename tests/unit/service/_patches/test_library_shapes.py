"""What the patches rely on in each library: a test fails where a new version of it has another shape."""

import ast
import inspect
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import uvicorn
from circus.sighandler import SysHandler
from prometheus_client import Counter, Gauge, Histogram, values
from turnscore_service._patches.circus_hangup import handle_hangup
from turnscore_service._patches.uvicorn_http import BoundedHttpProtocol
from turnscore_service._patches.uvicorn_websocket import BoundedWebSocketProtocol, install_protocols
from turnscore_service.api.http.exchange import serving_with
from turnscore_service.settings.service import Settings
from uvicorn.config import HTTP_PROTOCOLS, WS_PROTOCOLS
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import Protocol
from websockets.server import ServerProtocol


def assigned(kind: type) -> set[str]:
    """The attributes that its instances get when they are made."""
    tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(kind.__init__)))
    stored = (each for each in ast.walk(tree) if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store))
    return {each.attr for each in stored}


def test_a_server_configured_as_bentoml_does_takes_our_protocols(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HTTP_PROTOCOLS, "auto", HTTP_PROTOCOLS["auto"])
    monkeypatch.setitem(WS_PROTOCOLS, "auto", WS_PROTOCOLS["auto"])
    install_protocols(serving_with(Settings()))
    config = uvicorn.Config(lambda: None, log_config=None)
    config.load()
    assert issubclass(config.http_protocol_class, BoundedHttpProtocol)
    assert issubclass(config.ws_protocol_class or object, BoundedWebSocketProtocol)


@pytest.mark.parametrize(
    ("kind", "attributes", "methods"),
    [
        (
            HttpToolsProtocol,
            "app cycle flow headers loop pipeline scope server_state transport",
            "connection_made connection_lost data_received handle_websocket_upgrade on_message_begin on_url on_header "
            "on_headers_complete on_body on_message_complete send_400_response",
        ),
        (
            RequestResponseCycle,
            "access_log body default_headers disconnected keep_alive message_event more_body on_response "
            "response_complete response_started scope waiting_for_100_continue",
            "run_asgi send receive",
        ),
        (FlowControl, "write_paused", "resume_reading"),
        (
            WebSocketsSansIOProtocol,
            "app close_sent conn frames handshake_initiated logger loop queue read_paused transport writable",
            "data_received connection_lost pause_writing resume_writing handle_cont handle_parser_exception receive "
            "send",
        ),
        (Protocol, "close_sent handshake_exc max_message_size state", "data_to_send send_text fail"),
        (ServerProtocol, "available_extensions", "reject fail"),
    ],
)
def test_the_server_has_what_its_protocols_are_changed_by(kind: type, attributes: str, methods: str) -> None:
    missing = set(attributes.split()) - assigned(kind) - set(dir(kind))
    assert (missing, [each for each in methods.split() if not callable(getattr(kind, each, None))]) == (set(), [])


def test_the_supervisor_calls_the_handler_of_a_hangup_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SysHandler, "handle_hup", SysHandler.handle_hup)
    monkeypatch.setattr(SysHandler, "_register", lambda _: None)  # it would take over this process's signals
    handled: list[str] = []
    handle_hangup(lambda: handled.append("hangup"))
    SysHandler(controller=None).signal(signal.SIGHUP)
    assert handled == ["hangup"]


def test_series_have_the_parts_that_are_written_directly() -> None:
    labels = {"registry": None}
    assert callable(Counter("turnscore_shape_total", "x", **labels)._value.inc)
    assert callable(Gauge("turnscore_shape", "x", **labels)._value.set)
    histogram = Histogram("turnscore_shape_seconds", "x", buckets=(1.0,), **labels)
    assert (len(histogram._buckets), histogram._upper_bounds, histogram._sum.get()) == (2, [1.0, float("inf")], 0)
    made = Gauge("turnscore_shape_labelled", "x", ["by"], **labels).labels("a")
    assert made._metric_init.__func__ is Gauge._metric_init
    assert values.ValueClass._multiprocess is False
    assert {"_multiprocess", "inc", "set", "get"} <= set(dir(values.MultiProcessValue()))


ASK = "from bentoml._internal.utils.analytics.usage_stats import do_not_track; print(not do_not_track())"
SERVE = f"""if True:
    import os
    from turnscore_service import serving
    execute = os.execv
    serving.os.execv = lambda path, words: execute(path, [path, "-c", {ASK!r}])
    serving.serve()
"""


@pytest.mark.parametrize("code", [SERVE, f"from turnscore_models.store import list_bundles; list_bundles(); {ASK}"])
@pytest.mark.parametrize(("given", "sent"), [({}, False), ({"BENTOML_DO_NOT_TRACK": "False"}, True)])
def test_bentoml_sends_usage_reports_only_where_told_to(
    code: str, given: dict[str, str], sent: bool, tmp_path: Path
) -> None:
    """The supervisor that `turnscore serve` becomes with several workers, and whatever stores a bundle."""
    environment = {name: value for name, value in os.environ.items() if name != "BENTOML_DO_NOT_TRACK"}
    environment |= {"TURNSCORE_WORKERS": "2", "BENTOML_HOME": str(tmp_path), **given}
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    assert printed.split()[-1] == str(sent)


def test_bentoml_gives_its_workers_the_folder_that_is_replaced(tmp_path: Path) -> None:
    code = "from bentoml.serving import ensure_prometheus_dir; print(ensure_prometheus_dir())"
    environment = {**os.environ, "BENTOML_HOME": str(tmp_path)}
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    assert Path(printed.split()[-1]).name == "prometheus_multiproc_dir"
