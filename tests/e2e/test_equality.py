"""The real service: the same turn, however it is asked, scores the same within what docs/api.md promises.

The dialogues were written for this file.
"""

import pytest
from turnscore_load.scenarios.equal import BOUNDS, check_bounds, compare_ways
from turnscore_wire import Turn

pytestmark = pytest.mark.e2e

TEXTS = (
    (
        "hi there!",
        "hello! how was your weekend?",
        "quiet. my brother came over and we repaired the old bicycle that has been in the cellar since spring",
        "that must have been fun. does it ride well again?",
        "the brakes still squeak",
        "oh no. did you try to clean the rims? a bit of soap often helps, and new pads cost next to nothing.",
        "good idea",
        "let me know how it goes.",
    ),
    (
        "can you recommend a book?",
        "sure, what do you like to read?",
        "crime, but nothing cruel",
        "then try an old one by the sea: a lighthouse keeper who counts ships, and one too many arrives.",
        "DRAMA",
        "ha, yes, a little.",
    ),
    ("what is the capital of Peru?", "lima."),
)
# What is computed alone is computed in the same way every time.
EXACT = {"again", "after a restart", "in a live conversation"}


def test_a_turn_scores_the_same_however_it_is_asked(client):
    dialogues = [
        [Turn(speaker="system" if place % 2 else "user", text=text) for place, text in enumerate(texts)]
        for texts in TEXTS
    ]
    found = compare_ways(client, client, dialogues)
    assert {each.scorer for each in found} == set(BOUNDS) - {"fed"}  # which only stands in, and is asked by name alone
    exact = [each for each in found if each.way in EXACT]
    assert [each for each in (*check_bounds(found), *check_bounds(exact, {})) if not each.holds] == []
