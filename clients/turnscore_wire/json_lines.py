"""One line of JSON Lines as an object, read strictly and alike by every command that scores files."""

import json
import math
from typing import Any, NoReturn


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
        raise ValueError(f"the line is not JSON: {error}") from None
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
