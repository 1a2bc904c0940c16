"""The error tree: complete, drawn as it is, and able to travel between processes."""

import pickle

import pytest
from turnscore_client import ConnectionFailedError, ErrorCode, UnexpectedReplyError
from turnscore_client._errors import ERROR_CLASSES


@pytest.mark.parametrize(
    "error",
    [
        ERROR_CLASSES[ErrorCode.OVERLOADED]("full", "items.3", 50, "r-1"),
        UnexpectedReplyError("a page", 502, "<html>", "r-2"),
        ConnectionFailedError("refused"),
    ],
)
def test_errors_survive_pickling(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert vars(copy) == vars(error)
    assert str(copy) == str(error)
