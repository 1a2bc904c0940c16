import pytest
from turnscore_core.scorers.sentiment_stop import SpecialTokens, WindowLayout, lay_out_row

FIRST, SEPARATOR, USER, SYSTEM = 1, 2, 3, 4
SPECIAL = SpecialTokens(first=FIRST, separator=SEPARATOR, user=USER, system=SYSTEM)
CONTEXT = [("user", [10, 11]), ("system", [20]), ("user", [30, 31, 32])]
RESPONSE = [40, 41]


def lay_out(limit, turns=3, marks="separator", context=CONTEXT, response=RESPONSE):
    layout = WindowLayout(context_turns=turns, turn_marks=marks, response_segment=1)
    return lay_out_row(context, response, layout, SPECIAL, limit)


def test_a_row_is_context_then_response():
    row = lay_out(100)
    assert row.ids == (1, 10, 11, 2, 20, 2, 30, 31, 32, 2, 40, 41, 2)
    assert row.ids[row.response_start :] == (40, 41, 2)
    assert row.dropped == 0


def test_speakers_may_be_marked_instead():
    assert lay_out(100, marks="speaker").ids == (1, 3, 10, 11, 4, 20, 3, 30, 31, 32, 2, 40, 41, 2)


@pytest.mark.parametrize(("turns", "dropped"), [(0, 6), (1, 3), (2, 2), (3, 0), (9, 0)])
def test_turns_beyond_the_layout_are_told_as_dropped(turns, dropped):
    assert lay_out(100, turns).dropped == dropped


@pytest.mark.parametrize("marks", ["separator", "speaker"])
@pytest.mark.parametrize("limit", range(5, 16))
def test_every_limit_is_kept_and_every_token_accounted_for(limit, marks):
    row = lay_out(limit, marks=marks)
    assert len(row.ids) <= limit
    assert sum(token >= 10 for token in row.ids) + row.dropped == 8
    assert row.ids[row.response_start - 1] == row.ids[-1] == SEPARATOR


def test_the_oldest_part_of_the_context_is_cut_first():
    assert lay_out(10).ids == (1, 20, 2, 30, 31, 32, 2, 40, 41, 2)
    assert lay_out(7).ids == (1, 31, 32, 2, 40, 41, 2)


def test_a_long_response_keeps_its_beginning_and_leaves_no_context():
    row = lay_out(6, response=[40, 41, 42, 43, 44])
    assert row.ids == (1, 2, 40, 41, 42, 2)
    assert row.dropped == 2 + 6
