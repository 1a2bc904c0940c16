"""The error tree: complete, drawn as it is, and able to travel between processes."""

import inspect
import pickle
import re

import pytest
from turnscore_client import (
    ConnectionFailedError,
    ErrorCode,
    ErrorDetail,
    ErrorReply,
    TurnScoreError,
    UnexpectedReplyError,
    _errors,
    error_from_reply,
)
from turnscore_client._errors import ERROR_CLASSES
from turnscore_wire import ERROR_TABLE


def test_every_error_code_has_its_own_class():
    assert set(ERROR_CLASSES) == set(ErrorCode) == set(ERROR_TABLE)
    assert len(set(ERROR_CLASSES.values())) == len(ErrorCode)
    for code, error_class in ERROR_CLASSES.items():
        assert error_class.code is code
        assert error_class.__name__ == "".join(word.title() for word in code.split("_")) + "Error"


def test_the_drawn_tree_is_the_tree():
    drawn = re.findall(r"(\w+Error) {2,}(\w+)?", _errors.__doc__ or "")
    classes = {name: value for name, value in vars(_errors).items() if inspect.isclass(value)}
    ours = {name for name, value in classes.items() if issubclass(value, TurnScoreError)}
    assert {name for name, _ in drawn} == ours
    for name, code in drawn:
        if name not in ("TurnScoreError", "ServiceError"):
            assert classes[name].code == code


@pytest.mark.parametrize("code", list(ErrorCode))
def test_an_error_reply_becomes_its_class_with_everything_it_says(code):
    detail = ErrorDetail(code=code, message="because", field="response", retry_after_ms=70)
    error = error_from_reply(ErrorReply(error=detail, request_id="r-1"))
    assert type(error) is ERROR_CLASSES[code]
    assert (error.message, error.field, error.retry_after_ms, error.request_id) == ("because", "response", 70, "r-1")
    assert error.detail() == detail
    assert str(error) == f"{code.value} (response): because"


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
