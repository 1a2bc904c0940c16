"""Which version of each scorer answers a conversation."""

import math

import pytest
from support.fakes import FakeScorer, candidate_version, loaded_fake
from turnscore_core.model_set import choose_defaults
from turnscore_service.auth.access import CALLER, Caller, Preferences
from turnscore_service.scheduling.versions import TrafficSplit, conversation_key, is_drawn
from turnscore_wire import Turn

IDS = [f"conversation-{number}" for number in range(10_000)]


def drawn(version):
    return {each for each in IDS if is_drawn(f"named:{each}", version)}


def roster_of(*names):
    return choose_defaults({name: loaded_fake(FakeScorer(), name) for name in names or ("fake",)})


def user(text):
    return Turn(speaker="user", text=text)


def system(text):
    return Turn(speaker="system", text=text)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9])
def test_a_version_answers_its_share_of_the_conversations(share):
    count = len(drawn(candidate_version(FakeScorer(), share)))
    # Ids are fixed, so this is no game of chance: the count is one draw of the binomial that the share promises.
    assert abs(count - share * len(IDS)) <= 3.3 * math.sqrt(len(IDS) * share * (1 - share))


def test_a_share_that_is_raised_keeps_the_conversations_that_it_had():
    few, many = drawn(candidate_version(FakeScorer(), 0.1)), drawn(candidate_version(FakeScorer(), 0.3))
    assert few < many


def test_the_same_conversation_is_drawn_in_every_process():
    version = candidate_version(FakeScorer(), 0.1)
    assert sorted(drawn(version))[:3] == ["conversation-1002", "conversation-1014", "conversation-1016"]


def test_a_conversation_stays_with_its_version_turn_by_turn():
    split = TrafficSplit(roster_of(), [candidate_version(FakeScorer(), 0.5)])
    for number in range(50):
        turns = [system("Welcome!"), user(f"my order {number} is late"), system("Oh."), user("so?"), system("Sorry.")]
        found = {id(split.model_set_for(None, turns[:length])) for length in range(2, len(turns) + 1)}
        assert len(found) == 1
        later = [user("x"), *turns]
        assert len({id(split.model_set_for(f"c{number}", each)) for each in (turns, later, [])}) == 1


def test_before_the_user_said_anything_the_served_version_answers():
    split = TrafficSplit(roster_of(), [candidate_version(FakeScorer(), 1.0)])
    assert conversation_key(None, [system("Welcome!"), user("  ")]) is None
    assert split.model_set_for(None, [system("Welcome!")]).versions == {}
    assert split.model_set_for(None, [user("hi")]).versions == {"fake": "fake:1.1.0"}


def test_a_version_without_a_share_answers_the_keys_that_name_it_and_nobody_else():
    split = TrafficSplit(roster_of(), [candidate_version(FakeScorer(), 0.0)])
    assert {id(split.model_set_for(each)) for each in IDS[:500]} == {id(split.model_set_for())}
    token = CALLER.set(Caller("team", preferences=Preferences(models=("fake:1.1.0",))))
    try:
        found = {split.model_set_for(each).scorers["fake"].model for each in (*IDS[:500], None)}
        assert found == {"fake:1.1.0"}
    finally:
        CALLER.reset(token)
