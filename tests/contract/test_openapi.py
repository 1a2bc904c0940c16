"""The OpenAPI document is the committed one, and whatever is sent is answered as it says."""

import json
from pathlib import Path

import pytest
from generated_docs import openapi_document
from hypothesis import settings
from support.every_way import SCHEMA, assert_documented
from support.fakes import FakeEncoder, FakeScorer
from support.transports import served_app
from turnscore_service.api.calls import CALLS
from turnscore_service.api.http.rerank import RERANK

COMMITTED = Path(__file__).parents[2] / "docs" / "openapi.json"


def test_the_served_document_equals_the_committed_file():
    assert COMMITTED.read_text() == openapi_document(), "run `make generate WHAT=schema`"


async def test_every_example_of_the_document_is_answered_by_any_service_with_an_encoder(serve):
    paths = json.loads(openapi_document())["paths"]
    examples = {
        path: operation["requestBody"]["content"]["application/json"]["example"]
        for path, operations in paths.items()
        for operation in operations.values()
        if "requestBody" in operation
    }
    assert set(examples) == {f"/v1/{call.name}" for call in (*CALLS, RERANK)}
    async with serve(fake=FakeScorer(), encoder=FakeEncoder()) as (client, _):
        for path, example in examples.items():
            answer = await client.post(path, json=example)
            assert (answer.status_code, '"error"' in answer.text) == (200, False), path


# A busy machine takes long to draw a batch, which says nothing about the service.
fuzzed = settings(max_examples=12)


@pytest.fixture(scope="module")
def url():
    with served_app(fake=FakeScorer()) as (started, _):
        yield started


@SCHEMA.parametrize()
@fuzzed
def test_every_answer_is_documented(case, url):
    assert_documented(case, url)
