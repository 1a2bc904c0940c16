"""The starter quality bundle on conversations written for the tests: what fits comes first, what is wrong falls."""

from collections.abc import Sequence

import pytest
from support.every_way import (
    CHOICES,
    FAULTS,
    LONG_CONTEXT,
    LONG_FAULTS,
    LONG_REPLY,
    Choice,
    Fault,
    as_turns,
    place_fault,
)
from turnscore_core.loaded_scorer import LoadedScorer, load_scorer
from turnscore_core.scorers.scorer import RawScore, TurnToScore
from turnscore_core.scoring import score_turns
from turnscore_models import read_bundle, starter_bundles
from turnscore_wire import Turn


@pytest.fixture(scope="module")
def quality() -> LoadedScorer:
    folder = next(each for each in starter_bundles() if each.name == "quality")
    return load_scorer(read_bundle(folder), "cpu-int8")


def ask(quality: LoadedScorer, context: tuple[str, ...], responses: Sequence[str]) -> list[RawScore]:
    turns = [Turn.model_validate(each) for each in as_turns(context)]
    return score_turns(quality, [TurnToScore(turns, response) for response in responses])


def puts_good_first(quality: LoadedScorer, choice: Choice) -> bool:
    good, *others = ask(quality, choice.context, [choice.good, *choice.others.values()])
    return all(good.value > other.value for other in others)


def test_the_fitting_response_comes_first_in_eleven_of_twelve(quality: LoadedScorer) -> None:
    assert len(CHOICES) == 12
    assert sum(puts_good_first(quality, choice) for choice in CHOICES) >= 11


def is_in_order(quality: LoadedScorer, fault: Fault) -> bool:
    good, bad = ask(quality, fault.context, [fault.good, fault.bad])
    return good.value > bad.value


def test_nine_of_ten_faults_score_below_the_fitting_response(quality: LoadedScorer) -> None:
    assert len(FAULTS) == 20
    assert sum(is_in_order(quality, fault) for fault in FAULTS) >= 18


@pytest.mark.parametrize("fault", LONG_FAULTS)
@pytest.mark.parametrize("where", ["start", "middle", "end"])
def test_a_fault_in_a_long_reply_is_seen_wherever_it_is(quality: LoadedScorer, fault: str, where: str) -> None:
    good, bad = ask(quality, LONG_CONTEXT, [LONG_REPLY, place_fault(LONG_FAULTS[fault], where)])
    assert good.value > bad.value
