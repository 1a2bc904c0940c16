"""Logging on standard error, with the request id and its API key's name. No line holds dialogue text.

A terminal gets sentences, and of the server's own lines warnings only; everything else gets JSON lines.
"""

import logging
from contextvars import ContextVar

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

from turnscore_service._patches import WEBSOCKET_LOGGER

REQUEST_ID: ContextVar[str | None] = ContextVar("turnscore_request_id", default=None)
KEY_NAME: ContextVar[str | None] = ContextVar("turnscore_key_name", default=None)
LOGGER_NAME = "turnscore"
_SERVER_LOGGERS = ("bentoml", "uvicorn")
# BentoML gives these handlers of their own besides, so that every line came twice, once as plain text.
_HANDLED_ABOVE = ("uvicorn.error", "circus")
_SERVER_ERRORS_LOGGER = "uvicorn.error"


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


class _TerminalFormatter(logging.Formatter):
    """The message, with its level from WARNING on, and the other fields that it does not have already."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the library's name
        level = f"{record.levelname}: " if record.levelno > logging.INFO else ""
        fields = "".join(
            f"  {name}={value}"
            for name, value in vars(record).items()
            if name not in RESERVED_ATTRS and value is not None and str(value) not in record.message
        )
        return f"{level}{record.message}{fields}"


def set_up_logging(level: str) -> None:
    """Sends the loggers of turnscore and of the server to standard error; may be repeated."""
    handler = logging.StreamHandler()
    handler.addFilter(_RequestFilter())
    is_terminal = handler.stream.isatty()
    handler.setFormatter(
        _TerminalFormatter()
        if is_terminal
        else JsonFormatter(
            "{asctime}{levelname}{name}{message}{request_id}",
            style="{",
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
        )
    )
    for name in (LOGGER_NAME, *_SERVER_LOGGERS):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        if is_terminal and name != LOGGER_NAME:
            logger.setLevel(max(logging.WARNING, logger.level))
        logger.propagate = False
    for name in _HANDLED_ABOVE:
        logging.getLogger(name).handlers = []
    logging.getLogger().handlers = [handler]
    errors = logging.getLogger(_SERVER_ERRORS_LOGGER)
    # In detail the server's WebSocket library writes headers, with their keys, and frames, with their dialogues.
    errors.setLevel(max(logging.WARNING if is_terminal else logging.INFO, logging.getLogger(LOGGER_NAME).level))
    socket = logging.getLogger(WEBSOCKET_LOGGER)
    socket.setLevel(logging.WARNING)
    socket.filters = [_is_no_refused_handshake]
    # Without a handler the server does not even make its line for each request; `log_requests` is ours.
    access = logging.getLogger("uvicorn.access")
    access.handlers = []
    access.propagate = False
