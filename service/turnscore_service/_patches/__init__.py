"""Changes that turnscore makes to libraries from outside; each has a test that fails when the library changes shape."""

# uvicorn's WebSocket protocol writes two lines for each conversation, which is what `log_requests` is for.
WEBSOCKET_LOGGER = "uvicorn.error.websocket"
