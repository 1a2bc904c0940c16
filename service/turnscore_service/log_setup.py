"""Logging: JSON lines on standard error, with the request id and its API key's name. No line holds dialogue text."""

import logging
from contextvars import ContextVar

from pythonjsonlogger.json import JsonFormatter

from turnscore_service._patches import WEBSOCKET_LOGGER

REQUEST_ID: ContextVar[str | None] = ContextVar("turnscore_request_id", default=None)
KEY_NAME: ContextVar[str | None] = ContextVar("turnscore_key_name", default=None)
LOGGER_NAME = "turnscore"
_SERVER_LOGGERS = ("bentoml", "uvicorn")
# BentoML gives these handlers of their own besides, so that every line came twice, once as plain text.
_HANDLED_ABOVE = ("uvicorn.error", "circus")
_SERVER_ERRORS_LOGGER = "uvicorn.error"
# Without a handler the server does not even make its line for each request; `log_requests` is ours.
_ACCESS_LOGGER = "uvicorn.access"


def _is_no_refused_handshake(record: logging.LogRecord) -> bool:
    """uvicorn (0.54) calls it an error of the application when a WebSocket's handshake was refused with an answer."""
    return record.getMessage() != "ASGI callable returned without completing handshake."


class _RequestFilter(logging.Filter):
    """Adds which request a line is about, and, where it came with an API key, the key's name."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "request_id"):
            record.request_id = REQUEST_ID.get()
        if (key := KEY_NAME.get()) is not None:
            record.key = key
        return True


def set_up_logging(level: str) -> None:
    """Sends the loggers of turnscore and of the server to standard error, one JSON object a line; may be repeated."""
    handler = logging.StreamHandler()
    handler.addFilter(_RequestFilter())
    handler.setFormatter(
        JsonFormatter(
            "{asctime}{levelname}{name}{message}{request_id}",
            style="{",
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
        )
    )
    for name in (LOGGER_NAME, *_SERVER_LOGGERS):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False
    for name in _HANDLED_ABOVE:
        logging.getLogger(name).handlers = []
    logging.getLogger().handlers = [handler]
    errors = logging.getLogger(_SERVER_ERRORS_LOGGER)
    # In detail the server's WebSocket library writes headers, with their keys, and frames, with their dialogues.
    errors.setLevel(max(logging.INFO, logging.getLogger(LOGGER_NAME).level))
    socket = logging.getLogger(WEBSOCKET_LOGGER)
    socket.setLevel(logging.WARNING)
    socket.filters = [_is_no_refused_handshake]
    access = logging.getLogger(_ACCESS_LOGGER)
    access.handlers = []
    access.propagate = False
