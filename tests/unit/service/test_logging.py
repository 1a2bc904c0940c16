import io
import json
import logging
import sys

import pytest
from pythonjsonlogger.json import JsonFormatter
from turnscore_service.log_setup import REQUEST_ID, _TerminalFormatter, set_up_logging


@pytest.fixture(autouse=True)
def _logging_as_it_was():
    yield
    for name in ("turnscore", "bentoml", "uvicorn"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    root = logging.getLogger()
    ours = JsonFormatter | _TerminalFormatter
    root.handlers = [each for each in root.handlers if not isinstance(each.formatter, ours)]


def test_a_line_is_json_with_the_request_id():
    set_up_logging("INFO")
    logger = logging.getLogger("turnscore")
    stream = io.StringIO()
    logger.handlers[0].setStream(stream)
    token = REQUEST_ID.set("r-1")
    logging.getLogger("turnscore.test").info("done", extra={"call": "score"})
    REQUEST_ID.reset(token)
    line = json.loads(stream.getvalue())
    assert (line["level"], line["message"], line["request_id"], line["call"]) == ("INFO", "done", "r-1", "score")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_sentences_and_warnings_of_the_server_only(monkeypatch):
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    set_up_logging("INFO")
    ours = logging.getLogger("turnscore.test")
    ours.info("turnscore is ready: %s", "http://[::1]:3000", extra={"url": "http://[::1]:3000"})
    ours.info("loaded", extra={"model": "quality:1", "wide_threads": None})
    ours.warning("slow")
    for name in ("uvicorn.error", "bentoml.serve"):
        logging.getLogger(name).info("a step of the start")
        logging.getLogger(name).warning("a fault")
    assert shown.getvalue().splitlines() == [
        "turnscore is ready: http://[::1]:3000", "loaded  model=quality:1", "WARNING: slow", "WARNING: a fault",
        "WARNING: a fault",
    ]  # fmt: skip
