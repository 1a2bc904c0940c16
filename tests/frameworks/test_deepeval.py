"""DeepEval, the real package: its own evaluation asks the metric for dialogues."""

import os

import pytest
from support.framework_service import ANSWERED, ASKED, BAD, Service, gone
from turnscore_client import ConnectionFailedError

os.environ["DEEPEVAL_TELEMETRY_OPT_OUT"] = "YES"
pytest.importorskip("deepeval", reason="DeepEval is not installed: make integrations")

from deepeval import evaluate
from deepeval.evaluate.configs import AsyncConfig, CacheConfig, DisplayConfig
from deepeval.test_case import ConversationalTestCase, Turn
from turnscore_client.writers.deepeval_metric import TurnScoreMetric


def dialogue(*answers: str) -> ConversationalTestCase:
    turns = [Turn(role="user", content=ASKED)]
    for answer in answers:
        turns += [Turn(role="assistant", content=answer), Turn(role="user", content="and then?")]
    return ConversationalTestCase(turns=turns[:-1])


@pytest.mark.parametrize("run_async", [True, False])
def test_an_evaluation_gets_the_mean_of_each_dialogue(service: Service, run_async: bool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # it writes its results where it is
    result = evaluate(
        [dialogue(ANSWERED, BAD), dialogue(ANSWERED)],
        [TurnScoreMetric(threshold=0.5, url=service.url)],
        async_config=AsyncConfig(run_async=run_async),
        display_config=DisplayConfig(show_indicator=False, print_results=False),
        cache_config=CacheConfig(write_cache=False, use_cache=False),
    )
    told = sorted((each.metrics_data[0].score, each.success) for each in result.test_results)
    assert told == [(pytest.approx(0.4), False), (pytest.approx(0.7), True)]
    assert {each.metrics_data[0].name for each in result.test_results} == {"turnscore quality"}


def test_a_service_that_is_down_is_an_error_of_the_evaluation():
    metric = TurnScoreMetric(url=gone().url)
    with pytest.raises(ConnectionFailedError):
        metric.measure(dialogue(ANSWERED))
