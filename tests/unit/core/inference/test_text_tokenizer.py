import gc
import json
import weakref
from pathlib import Path

import pytest
from turnscore_core.inference.tokenizer import TextTokenizer
from turnscore_models import starter_bundles


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A tokenizer file that nothing else has."""
    [engagement] = [each for each in starter_bundles() if each.name == "engagement"]
    described = json.loads((engagement / "tokenizer.json").read_text())
    described["model"]["vocab"] = {
        word: number for word, number in described["model"]["vocab"].items() if word[0] == "[" or len(word) < 3
    }
    copy = tmp_path / "tokenizer.json"
    copy.write_text(json.dumps(described))
    return copy


def test_equal_files_are_one_tokenizer_and_others_are_not(file: Path, tmp_path: Path):
    again, other = tmp_path / "again.json", tmp_path / "other.json"
    again.write_bytes(file.read_bytes())
    other.write_bytes(file.read_bytes() + b"\n")
    one = TextTokenizer.of(file)
    assert TextTokenizer.of(again) is one
    assert TextTokenizer.of(other) is not one


def test_a_file_that_is_written_anew_is_read_anew(file: Path):
    one = TextTokenizer.of(file)
    file.write_bytes(file.read_bytes().replace(b'"[MASK]"', b'"[SAME]"'))
    another = TextTokenizer.of(file)
    assert one.mask_id is not None
    assert another.mask_id is None


def test_a_tokenizer_that_nobody_uses_is_freed(file: Path):
    left = weakref.ref(TextTokenizer.of(file))
    gc.collect()
    assert left() is None


def test_what_cannot_be_read_is_said_by_its_name(tmp_path: Path):
    with pytest.raises(RuntimeError, match=r"missing\.json cannot be read"):
        TextTokenizer.of(tmp_path / "missing.json")
    (tmp_path / "torn.json").write_text("{")
    with pytest.raises(RuntimeError, match=r"torn\.json is not a tokenizer file"):
        TextTokenizer.of(tmp_path / "torn.json")


def test_a_word_that_has_to_be_tokenized_is_so_once_and_stands_wherever_it_was(
    file: Path, monkeypatch: pytest.MonkeyPatch
):
    tokenizer = TextTokenizer(file)
    texts = ["plain words", "a", "words in plain words", "¡plain!", "plain words"]
    alone = [tokenizer.encode([text])[0] for text in texts]
    tokenized: list[str] = []
    tokenize = tokenizer._tokenize
    monkeypatch.setattr(tokenizer, "_tokenize", lambda words: tokenized.extend(words) or tokenize(words))
    assert tokenizer.encode(texts) == alone
    assert sorted(tokenized) == ["plain", "words", "¡plain!"]
