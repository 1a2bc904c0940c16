import io
import json
import logging

from turnscore_service.log_setup import REQUEST_ID, set_up_logging


def test_a_line_is_json_with_the_request_id():
    set_up_logging("INFO")
    logger = logging.getLogger("turnscore")
    stream = io.StringIO()
    logger.handlers[0].setStream(stream)
    token = REQUEST_ID.set("r-1")
    logging.getLogger("turnscore.test").info("done", extra={"call": "score"})
    REQUEST_ID.reset(token)
    for name in ("turnscore", "bentoml", "uvicorn"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    line = json.loads(stream.getvalue())
    assert (line["level"], line["message"], line["request_id"], line["call"]) == ("INFO", "done", "r-1", "score")


def test_the_server_writes_no_line_for_each_request():
    access = logging.getLogger("uvicorn.access")
    access.addHandler(logging.NullHandler())
    set_up_logging("INFO")
    assert not access.hasHandlers()  # which the server asks before it makes one
    for name in ("turnscore", "bentoml", "uvicorn"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
