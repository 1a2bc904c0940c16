"""Readability and coherence: the published formulas on texts whose answer is known."""

import csv
import math

import pytest
from support.files import invoke
from turnscore_assessment.commands.main import app
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.readability import text_scores

SYLLABLES = {
    "the": 1, "cat": 1, "are": 1, "one": 1, "table": 2, "people": 2, "wanted": 2, "walked": 1, "boxes": 2, "makes": 1,
    "sometimes": 2, "everything": 3, "anyone": 3, "playing": 2, "player": 2, "year": 1, "york": 1, "idea": 3,
    "chocolate": 2, "definitely": 4, "university": 5, "question": 2, "special": 2, "radio": 3, "actual": 3,
    "don't": 1, "doesn't": 2, "i'm": 1, "they've": 1, "we'll": 1, "can’t": 1, "cruel": 2, "science": 2, "beautiful": 3,
}  # fmt: skip


def test_syllables_are_counted_as_they_are_said():
    assert {word: text_scores.count_syllables(word) for word in SYLLABLES} == SYLLABLES


def test_reading_ease_is_fleschs():
    found = text_scores.measure_readability("The cat sat on the mat.")
    assert (found.words, found.sentences, found.syllables) == (6, 1, 6)
    assert found.score == pytest.approx(116.145)
    assert not found.is_reliable
    hard = text_scores.measure_readability("Unconditional hospitality necessitates organizational responsibility.")
    assert hard.score is not None
    assert hard.score < -50


def test_the_penalty_is_the_published_one():
    six = text_scores.DullPatterns(["red green blue white black brown"], frozenset())
    assert text_scores.find_penalty("Red green blue, white black brown!", six) == pytest.approx(1 + math.log10(8 / 2))
    assert text_scores.find_penalty("red green blue white black", six) == 1
    assert text_scores.find_penalty("", six) == 1


def test_a_dot_is_no_wildcard_and_a_match_is_of_the_whole():
    """The released script used patterns as raw regular expressions, without an end."""
    patterns = text_scores.DullPatterns(
        ["i do n't know .", "$1 and $2"], frozenset(text_scores.read_shipped("function_words.txt"))
    )
    assert patterns.count_lively("i don't knowx") == patterns.count_content("i don't knowx") > 0
    assert text_scores.DullPatterns(["ok ."], frozenset()).count_lively("ok sailor") == 2


def test_the_command_writes_a_line_a_dialogue(tmp_path):
    file, out = tmp_path / "dialogues.jsonl", tmp_path / "out" / "text.csv"
    file.write_text(
        '{"system": "A bot with a long name", "turns": ["hi", "The cat sat on the mat."]}\n'
        '{"turns": []}\n{"turns": ["a", "ok"]}\n'
    )
    done = invoke(app, ["readability", str(file), "--output", str(out)])
    assert "A bot with a long name" in done.output
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["line"] for row in rows] == ["1", "3"]
    assert float(rows[0]["flesch"]) == pytest.approx(116.145)
    assert (rows[0]["distance"], rows[1]["system"]) == ("", "")


def test_wrong_lists_and_encoders_are_named(tmp_path):
    bad = tmp_path / "dull.txt"
    bad.write_text("$1 a $2 b $3\n")
    with pytest.raises(BadFileError, match="has more than 2 gaps"):
        text_scores.read_patterns(bad)
    bad.write_bytes(b"\xff")
    with pytest.raises(BadFileError, match="cannot be read"):
        text_scores.read_patterns(None, bad)
    file = tmp_path / "dialogues.jsonl"
    file.write_text('{"turns": ["a", "b"]}\n')
    words = ["readability", str(file), "--output", str(tmp_path / "o.csv")]
    done = invoke(app, [*words, "--encoder", f"{tmp_path}/nothing/"], code=1)
    assert "nothing" in done.stderr
