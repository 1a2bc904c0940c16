"""Lines and the turns in them, read strictly and alike by every command that scores files."""

import json
import math
from typing import Any, NoReturn

from pydantic import ValidationError

from turnscore_wire.errors import ErrorCode, ErrorDetail, describe_refusal
from turnscore_wire.messages import Limits, Turn, is_blank

# Why a system turn without a text is not scored, which is no failure.
SILENT = "the system said nothing"


def read_json_line(raw: bytes) -> dict[str, Any]:
    """The line's object. Raises ValueError with a sentence, which holds nothing of the line.

    JSON has no NaN and no infinity (RFC 8259, 6), which Python's reader takes, also as a number that is too large.
    """
    try:
        fields = json.loads(raw.decode("utf-8-sig"), parse_constant=_refuse_constant, parse_float=_read_float)
    except UnicodeDecodeError:
        raise ValueError("the line is not JSON: it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"the line is not JSON: {error.msg} at character {error.pos}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the line is not JSON: {str(error).partition(';')[0]}") from None
    if not isinstance(fields, dict):
        raise ValueError("the line is not a JSON object")
    return fields


def _read_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is larger than a number can be")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON")


def read_turn(turn: object, limits: Limits) -> Turn | ErrorDetail:
    """The turn; else the error, whose `field` is `text` where the rest of its dialogue can be scored without it."""
    try:
        read = Turn.model_validate(turn)
    except ValidationError as error:
        field, message = describe_refusal(error)
        return ErrorDetail(code=ErrorCode.INVALID_REQUEST, message=message, field=field)
    if len(read.text) > limits.max_text_chars:
        message = f"{len(read.text)} characters; at most {limits.max_text_chars} are allowed"
        return ErrorDetail(code=ErrorCode.TOO_LARGE, message=message, field="text")
    if read.speaker == "system" and is_blank(read.text):
        return ErrorDetail(code=ErrorCode.INVALID_REQUEST, message=SILENT, field="text")
    return read
