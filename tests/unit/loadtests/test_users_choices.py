"""The mix of users and the pace of people."""

import pytest
from turnscore_load.pace import pause_seconds
from turnscore_load.users.mix import DEFAULT_MIX, read_mix

KINDS = ("conversation", "flood", "batch")


def test_a_mix_names_users_of_each_kind():
    assert read_mix("conversation=24, flood=1,batch=0", KINDS) == {"conversation": 24, "flood": 1}
    assert set(read_mix(DEFAULT_MIX, KINDS)) == set(KINDS)


@pytest.mark.parametrize("text", ["", "flood", "flood=", "flood=-1", "flood=1,flood=2", "crowd=1", "flood=0"])
def test_a_mix_that_makes_no_sense_is_refused(text: str):
    with pytest.raises(ValueError, match="mix"):
        read_mix(text, KINDS)


def test_people_read_238_words_and_type_52_words_a_minute():
    assert pause_seconds(238, 0, 1) == pytest.approx(60)
    assert pause_seconds(0, 52, 1) == pytest.approx(60)
    assert pause_seconds(238, 52, 4) == pytest.approx(30)
