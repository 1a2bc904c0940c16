"""Requests of every shape that the OpenAPI document allows, and many that it does not (schemathesis)."""

import functools
import json

import httpx
import jsonschema_rs
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance
from turnscore_service.generated_docs import openapi_document

DOCUMENT = json.loads(openapi_document())
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)


def assert_documented(case: schemathesis.Case, url: str) -> None:
    """The answer's status, headers and body are those of the document; no request makes the service fail."""
    excluded = [
        positive_data_acceptance,  # a schema cannot say which scorers are loaded, nor what their options are
        not_a_server_error,  # counts 504, which is the right answer to a deadline of 1 ms; stricter below
    ]
    if case.path == "/v1/score_batch":
        excluded.append(negative_data_rejection)  # a wrong item is answered with its own error, within a 200
    elif _is_wrong_in_messages_alone(case):
        excluded.append(negative_data_rejection)  # what nobody reads of a message is not checked (messages.md)
    response = case.call_and_validate(base_url=url, excluded_checks=excluded)
    assert response.status_code < 500 or response.status_code == httpx.codes.GATEWAY_TIMEOUT


def _is_wrong_in_messages_alone(case: schemathesis.Case) -> bool:
    """Whether every message is an object, and the body would be right if they were others."""
    messages = case.body.get("messages") if isinstance(case.body, dict) else None
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        return False
    return _body_validator(case.path).is_valid(case.body | {"messages": [{"role": "user", "content": "hi"}]})


@functools.cache
def _body_validator(path: str) -> jsonschema_rs.Draft202012Validator:
    (body,) = DOCUMENT["paths"][path]["post"]["requestBody"]["content"].values()
    return jsonschema_rs.Draft202012Validator({**body["schema"], "components": DOCUMENT["components"]})


def ask_what_is_loaded(case: schemathesis.Case) -> None:
    """Makes a request that the document allows name no scorers and no options, so that it is scored."""
    items = case.body.get("items", [case.body]) if isinstance(case.body, dict) else []
    if case.meta is not None and case.meta.generation.mode.is_positive:
        for item in items:
            for name in ("scorers", "options", "weights"):
                item.pop(name, None)
