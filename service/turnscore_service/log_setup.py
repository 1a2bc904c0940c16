"""Logging: JSON lines on standard error, with the request id. No line ever holds dialogue text."""

import logging
from contextvars import ContextVar

from pythonjsonlogger.json import JsonFormatter

REQUEST_ID: ContextVar[str | None] = ContextVar("turnscore_request_id", default=None)
LOGGER_NAME = "turnscore"
_SERVER_LOGGERS = ("bentoml", "uvicorn")
_ACCESS_LOGGER = "uvicorn.access"
"""Without a handler the server does not even make its line for each request; `log_requests` is ours."""


class _RequestIdFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "request_id"):
            record.request_id = REQUEST_ID.get()
        return True


def set_up_logging(level: str) -> None:
    """Sends the loggers of turnscore and of the server to standard error, one JSON object a line; may be repeated."""
    handler = logging.StreamHandler()
    handler.addFilter(_RequestIdFilter())
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
    access = logging.getLogger(_ACCESS_LOGGER)
    access.handlers = []
    access.propagate = False
