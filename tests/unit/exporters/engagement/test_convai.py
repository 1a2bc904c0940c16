"""ConvAI's labels, pairs and splits, on dialogues made here."""

import pytest
from support.exporter_data import build_dialogue, write_rows
from turnscore_assessment.data.dialogues import RecordedDialogue, RecordedTurn
from turnscore_assessment.errors import BadFileError
from turnscore_exporters.data.pairs import (
    ConvaiSplit,
    Labels,
    build_pairs,
    build_thumb_pairs,
    check_published_counts,
    count_labels,
    label_dialogue,
    rate_dialogue,
    read_convai,
    split_dialogues,
)
from turnscore_exporters.errors import PairCountError


def make_dialogue(*texts, rating=4, has_bot=True, order=0):
    return RecordedDialogue(
        id=str(order), order=order, turns=tuple(RecordedTurn(speaker, text) for speaker, text in texts),
        participants={"Alice": "human", "Bob": "bot" if has_bot else "human"},
        ratings={"Alice": {"engagement": 0 if has_bot else rating}, "Bob": {"engagement": rating}},
    )  # fmt: skip


FOUR_TURNS = (("Alice", "a"), ("Bob", "b"), ("Alice", "c"), ("Bob", "d"))


def test_published_labels_read_the_zero_under_the_humans_name_and_corrected_ones_the_bots_rating():
    dialogue = make_dialogue(*FOUR_TURNS, rating=5)
    assert (rate_dialogue(dialogue, Labels.PUBLISHED), rate_dialogue(dialogue, Labels.CORRECTED)) == (0, 5)
    assert label_dialogue(dialogue, Labels.PUBLISHED) == 0
    assert label_dialogue(make_dialogue(*FOUR_TURNS, rating=3), Labels.CORRECTED) == 1
    assert label_dialogue(make_dialogue(*FOUR_TURNS, rating=2), Labels.CORRECTED) == 0


@pytest.mark.parametrize(("ratings", "expected"), [((2, 3), 2), ((3, 4), 4), ((5, 5), 5), ((1, 2), 2)])
def test_human_human_rating_is_pythons_round_of_the_mean(ratings, expected):
    dialogue = make_dialogue(*FOUR_TURNS, has_bot=False)
    dialogue.ratings["Alice"]["engagement"], dialogue.ratings["Bob"]["engagement"] = ratings
    assert rate_dialogue(dialogue, Labels.PUBLISHED) == rate_dialogue(dialogue, Labels.CORRECTED) == expected


def test_published_pairs_of_a_dull_dialogue_are_every_second_one():
    turns = [("Alice" if index % 2 == 0 else "Bob", str(index)) for index in range(5)]
    dull = build_pairs([make_dialogue(*turns)], Labels.PUBLISHED)
    lively = build_pairs([make_dialogue(*turns, has_bot=False)], Labels.PUBLISHED)
    assert [(pair.query, pair.response, pair.rating) for pair in dull] == [("0", "1", 0), ("2", "3", 0)]
    assert [(pair.query, pair.response) for pair in lively] == [("0", "1"), ("1", "2"), ("2", "3"), ("3", "4")]


def test_thumb_pairs_take_what_the_human_said_last():
    said = [("Bob", "welcome", 2), ("Alice", "one"), ("Alice", "two"), ("Bob", "three", 1), ("Bob", "four", 2)]
    turns = tuple(RecordedTurn(*each) for each in (*said, ("Bob", "five", 0)))
    dialogue = RecordedDialogue(id="x", order=0, turns=turns, participants={"Alice": "human", "Bob": "bot"}, ratings={})
    found = [(pair.query, pair.response, pair.rating) for pair in build_thumb_pairs([dialogue])]
    assert found == [("", "welcome", 1), ("one two", "three", 0), ("one two", "four", 1)]


def test_split_is_by_order_within_each_published_label():
    dialogues = [make_dialogue(*FOUR_TURNS, has_bot=number % 2 == 0, order=9 - number) for number in range(10)]
    splits = split_dialogues(dialogues)
    assert [dialogue.order for dialogue in splits[ConvaiSplit.TRAIN]] == [1, 3, 5, 0, 2, 4]
    assert [dialogue.order for dialogue in splits[ConvaiSplit.TEST]] == [7, 6]
    assert [dialogue.order for dialogue in splits[ConvaiSplit.VALIDATION]] == [9, 8]


def test_no_dialogue_is_in_two_splits_under_any_reading(tmp_path):
    rows = [build_dialogue(number, has_bot=number % 2 == 0, rating=number % 6) for number in range(60)]
    convai = read_convai(write_rows(tmp_path / "convai.jsonl.gz", rows), frozenset({"d3"}))
    members = {split: set() for split in ConvaiSplit}
    for split in ConvaiSplit:
        for pairs in (*(convai.pairs[labels][split] for labels in Labels), convai.thumbs[split]):
            members[split] |= {pair.dialogue for pair in pairs}
    everyone = set.union(*members.values())
    assert len(everyone) == sum(map(len, members.values())), "one is in two splits"
    assert "d3" not in everyone


def test_pair_counts_of_another_file_are_refused(tmp_path):
    rows = [build_dialogue(number, has_bot=True, rating=2, turns=4) for number in range(10)]
    convai = read_convai(write_rows(tmp_path / "convai.jsonl.gz", rows))
    assert count_labels(convai.pairs[Labels.PUBLISHED][ConvaiSplit.TRAIN]) == (12, 0)
    with pytest.raises(PairCountError, match=r"train: 12/0 .* 6222/1562"):
        check_published_counts(convai)


BAD_ROWS = [
    ({"turns": "hi"}, "turns: input should be a valid tuple"),
    ({"turns": [{"speaker": "Alice"}]}, "turns.0.text: field required"),
    ({"turns": [{"speaker": "Alice", "text": "hi", "thumb": 7}]}, "turns.0.thumb: input should be less"),
    ({"turns": [{"speaker": "Carol", "text": "hi"}]}, "Carol"),
    ({"ratings": {"Alice": {"engagement": 3}}}, "same two speakers"),
    ({"ratings": {"Alice": {"engagement": 9}, "Bob": {"engagement": 1}}}, "engagement 9, expected 0 to 5"),
]


@pytest.mark.parametrize(("change", "reason"), BAD_ROWS)
def test_bad_row_is_refused_by_file_and_row(tmp_path, change, reason):
    good = build_dialogue(0, has_bot=True, rating=2)
    path = write_rows(tmp_path / "convai.jsonl.gz", [good, {**good, **change}])
    with pytest.raises(BadFileError, match=r"convai\.jsonl\.gz, line 2: ") as caught:
        read_convai(path)
    assert reason in str(caught.value)
