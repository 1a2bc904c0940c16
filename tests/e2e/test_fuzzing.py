"""Whatever is sent to the real service with its three scorers, the answer is documented and nothing fails."""

import pytest
from hypothesis import settings
from support.every_way import SCHEMA, ask_what_is_loaded, assert_documented

pytestmark = pytest.mark.e2e


@SCHEMA.include(path_regex="/v1/(score|rank)").parametrize()
@settings(max_examples=5)
def test_no_text_makes_a_scorer_fail(case, service):
    ask_what_is_loaded(case)
    assert_documented(case, service.url)
    assert service.process.poll() is None
