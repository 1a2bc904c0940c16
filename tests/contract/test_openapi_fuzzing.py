"""Whatever is sent, the transport answers as its OpenAPI document says."""

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import settings
from support.every_way import SCHEMA, assert_documented
from support.fakes import FakeScorer
from support.transports import served_app

fuzzed = settings(max_examples=20, deadline=None, derandomize=True, database=None)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served_app(fake=FakeScorer()) as started:
        yield started


@SCHEMA.parametrize()
@fuzzed
def test_every_answer_is_documented(case: schemathesis.Case, url: str):
    assert_documented(case, url)
