"""Every unsuccessful answer, on every path, has the one shape, and its status is the table's."""

import json

import pytest
from support.fakes import POISON, FakeScorer, loader_of
from support.transports import http_client
from turnscore_models.manifest import BundleError
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.settings.service import Settings
from turnscore_wire import ERROR_TABLE, ErrorCode, ErrorReply, Limits

SMALL = Settings(limits=Limits(max_text_chars=20, max_turns=2, max_items=2, max_body_bytes=300))

JSON = {"content-type": "application/json"}

WRONG_CALLS = [
    ("/v1/score", {"response": ""}, "invalid_request", "response"),
    ("/v1/score", {"response": "a" * 21}, "too_large", "response"),
    ("/v1/score", {"response": "a" * 400}, "too_large", "body"),
    ("/v1/score", {"response": POISON}, "internal", None),
    ("/v1/nothing", {}, "not_found", None),
    ("/v1/score/", {"response": "a"}, "not_found", None),
]


def assert_refusal(response, code, field):
    reply = ErrorReply.model_validate_json(response.content)
    assert (reply.error.code, reply.error.field) == (code, field)
    assert response.status_code == ERROR_TABLE[reply.error.code].http_status
    assert response.headers["x-request-id"] == reply.request_id
    assert response.headers["content-type"] == "application/json"


@pytest.mark.parametrize(("path", "body", "code", "field"), WRONG_CALLS)
async def test_refusals_have_one_shape(serve, path, body, code, field):
    async with serve(SMALL, fake=FakeScorer()) as (client, _):
        assert_refusal(await client.post(path, json=body), code, field)


async def test_a_body_that_does_not_tell_its_length_is_still_bounded(serve):
    async def chunks():
        for _ in range(100):
            yield b" " * 100

    async with serve(SMALL, fake=FakeScorer()) as (client, _):
        assert_refusal(await client.post("/v1/score", content=chunks(), headers=JSON), "too_large", "body")


async def test_an_unknown_method_is_refused_in_the_same_shape(client):
    response = await client.get("/v1/score")
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert ErrorReply.model_validate_json(response.content).error.code == ErrorCode.INVALID_REQUEST


async def test_a_refused_bundle_leaves_the_service_not_ready_with_the_reason():
    def refuse():
        raise BundleError("engagement:1.0.0: graph.onnx has SHA-256 0, the manifest says 1")

    loader = loader_of({})
    loader.load_all = refuse
    runtime = Runtime(Settings(), loader)
    runtime.start()
    await runtime.wait_until_loaded()
    async with http_client(runtime) as client:
        assert (await client.get("/livez")).status_code == 200
        for response in (
            await client.get("/readyz"),
            await client.get("/v1/models"),
            await client.post("/v1/score", json={"response": "a"}),
        ):
            assert_refusal(response, "not_ready", None)
            assert "graph.onnx has SHA-256 0" in response.json()["error"]["message"]


async def test_a_draining_service_is_not_ready_and_still_answers(serve):
    async with serve(fake=FakeScorer()) as (client, runtime):
        assert (await client.get("/readyz")).json() == {"status": "ready"}
        runtime.begin_drain()
        assert_refusal(await client.get("/readyz"), "not_ready", None)
        assert (await client.post("/v1/score", json={"response": "a"})).status_code == 200


def test_every_code_has_a_status_of_its_own():
    assert set(ERROR_TABLE) == set(ErrorCode)
    assert len({rule.http_status for rule in ERROR_TABLE.values()}) == len(ERROR_TABLE)
    assert len({rule.grpc_code for rule in ERROR_TABLE.values()}) == len(ERROR_TABLE)


async def test_an_error_inside_the_transport_is_told_as_internal_without_its_text(serve):
    async with serve(fake=FakeScorer()) as (client, runtime):
        runtime.models = lambda _: json.loads("secret")
        response = await client.get("/v1/models")
    assert_refusal(response, "internal", None)
    assert "secret" not in response.text
