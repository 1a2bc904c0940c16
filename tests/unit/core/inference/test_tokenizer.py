"""Text into token ids: the tokenizer's own, looked up where words are known."""

import gzip
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.files import find_data
from tokenizers import Tokenizer
from turnscore_core.inference.tokenizer import TextTokenizer, WholeWords
from turnscore_models.bundle import starter_bundles


@pytest.fixture
def file(tmp_path):
    """A tokenizer file that nothing else has."""
    [engagement] = [each for each in starter_bundles() if each.name == "engagement"]
    described = json.loads((engagement / "tokenizer.json").read_text())
    described["model"]["vocab"] = {
        word: number for word, number in described["model"]["vocab"].items() if word[0] == "[" or len(word) < 3
    }
    copy = tmp_path / "tokenizer.json"
    copy.write_text(json.dumps(described))
    return copy


def test_equal_files_are_one_tokenizer_and_others_are_not(file, tmp_path):
    again, other = tmp_path / "again.json", tmp_path / "other.json"
    again.write_bytes(file.read_bytes())
    other.write_bytes(file.read_bytes() + b"\n")
    one = TextTokenizer.of(file)
    assert TextTokenizer.of(again) is one
    assert TextTokenizer.of(other) is not one


def test_a_file_that_is_replaced_is_read_again(file):
    one = TextTokenizer.of(file)
    file.write_bytes(file.read_bytes().replace(b'"[MASK]"', b'"[SAME]"'))
    another = TextTokenizer.of(file)
    assert one.mask_id is not None
    assert another.mask_id is None


def test_what_cannot_be_read_is_said_by_its_name(tmp_path):
    with pytest.raises(RuntimeError, match=r"missing\.json cannot be read"):
        TextTokenizer.of(tmp_path / "missing.json")
    (tmp_path / "torn.json").write_text("{")
    with pytest.raises(RuntimeError, match=r"torn\.json is not a tokenizer file"):
        TextTokenizer.of(tmp_path / "torn.json")


FILE = next(folder for folder in starter_bundles() if folder.name == "engagement") / "tokenizer.json"
OURS = TextTokenizer.of(FILE)
THEIRS = Tokenizer.from_file(str(FILE))
WORDS = sorted(word for word in THEIRS.get_vocab() if word.isascii())[::7]

texts = st.one_of(
    st.text(max_size=80),
    st.text(st.characters(max_codepoint=127), max_size=80),
    st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=6)), max_size=12).map(" ".join),
)


def expected(text):
    return list(THEIRS.encode(text, add_special_tokens=False).ids)


@given(st.lists(texts, max_size=4))
@example(["It's a [MASK] day", "naïve café", "tab\there\nand\rthere", "bell\x07 and \x0b and \x1c and \x7f"])
@example(["a" * 101, "_under_score_", "##ing", "UPPER Case", "", "   ", "3.14159 $5,000 C++"])
def test_ids_are_the_tokenizers_own(asked):
    assert OURS.encode(asked) == [expected(text) for text in asked]


def turns_said():
    [file] = find_data("dialogue_text.jsonl.gz")
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line, _ in zip(lines, range(200), strict=False):
            yield from strings_of(json.loads(line))


def strings_of(found):
    if isinstance(found, str):
        yield found
    elif isinstance(found, dict | list):
        for each in found.values() if isinstance(found, dict) else found:
            yield from strings_of(each)


def test_ids_of_what_people_said_are_the_tokenizers_own():
    said = list(turns_said())
    assert OURS.encode(said) == [expected(text) for text in said]


@pytest.mark.parametrize("part", ["normalizer", "pre_tokenizer", "model"])
def test_another_tokenizer_is_asked_for_every_text(part):
    described = json.loads(THEIRS.to_str())
    others = {
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1}, "unk_token": "[UNK]"},
    }
    other = Tokenizer.from_str(json.dumps({**described, part: others[part], "post_processor": None}))
    assert WholeWords.of(other) is None
