"""Decoding: JSON, or fields read otherwise, into wire requests. A refusal names the field, and repeats nothing sent."""

import json
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from turnscore_wire import BODY_FIELD, BatchRequest, Limits, ScoreRequest, tell_refusal

from turnscore_service.errors import InvalidRequestError, ScoringError
from turnscore_service.request_checks import check_item_count

_Request = TypeVar("_Request", bound=BaseModel)


class _UncheckedBatch(BaseModel):
    """A batch whose items are still to be looked at one by one."""

    model_config = ConfigDict(strict=True, extra="forbid")

    items: Annotated[list[Any], Field(min_length=1)]


def decode(kind: type[_Request], body: bytes) -> _Request:
    """The request in `body`. Raises InvalidRequestError for the first field that is wrong."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        if error.errors(include_url=False)[0]["type"] != "json_invalid":
            raise _refusal(error) from None
    # Python's own parser lets lone surrogates through, so that the field they stand in can be named.
    return validate(kind, _parse(body))


def decode_batch(body: bytes, limits: Limits) -> list[ScoreRequest | ScoringError]:
    """The items of a batch; one that is wrong is given as its error, the others are kept.

    Raises InvalidRequestError where the body is no batch at all, TooLargeError where it has too many items.
    """
    try:
        return list(BatchRequest.model_validate_json(body).items)
    except ValidationError:
        return _validate_each(decode(_UncheckedBatch, body), limits)


def validate(kind: type[_Request], parsed: object) -> _Request:
    """The request that was parsed already. Raises InvalidRequestError for the first field that is wrong."""
    try:
        return kind.model_validate(parsed)
    except ValidationError as error:
        raise _refusal(error) from None


def validate_batch(parsed: object, limits: Limits) -> list[ScoreRequest | ScoringError]:
    """As `decode_batch`, of a batch that was parsed already."""
    try:
        return list(BatchRequest.model_validate(parsed).items)
    except ValidationError:
        return _validate_each(validate(_UncheckedBatch, parsed), limits)


def _validate_each(batch: _UncheckedBatch, limits: Limits) -> list[ScoreRequest | ScoringError]:
    check_item_count(len(batch.items), limits)
    return [_validate_item(index, item) for index, item in enumerate(batch.items)]


def _validate_item(index: int, item: object) -> ScoreRequest | ScoringError:
    try:
        return ScoreRequest.model_validate(item)
    except ValidationError as error:
        return _refusal(error, f"items.{index}")


def _parse(body: bytes) -> object:
    try:
        return json.loads(body.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InvalidRequestError("the body is not UTF-8", field=BODY_FIELD) from None
    except RecursionError:
        raise InvalidRequestError("the body is nested too deeply", field=BODY_FIELD) from None
    except ValueError as error:
        where = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidRequestError(f"the body is not JSON{where}", field=BODY_FIELD) from None


def _refusal(error: ValidationError, prefix: str = "") -> InvalidRequestError:
    field, message = tell_refusal(error, prefix)
    return InvalidRequestError(message, field=field)
