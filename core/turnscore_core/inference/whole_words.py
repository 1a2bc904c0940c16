"""Whole words: token ids of plain English text by looking its words up, a tenth of what the tokenizer takes.

For printable ASCII a BERT tokenizer does nothing but split at spaces and marks, and a word of the vocabulary is one
token. Every other word is left to the tokenizer, as is every other text, so that the ids are always the tokenizer's.
Keeps nothing of a text.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import cast

from tokenizers import Tokenizer

_WORD = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9 ]")
_SPACES = str.maketrans("\n\r\t", "   ")
_PLAIN = ("BertNormalizer", "BertPreTokenizer", "WordPiece")
_SPECIAL = "["
"""Begins every special token of BERT, which the tokenizer finds before it looks for words."""


class LookedUp:
    """A text whose words were looked up."""

    __slots__ = ("_ids", "unknown")

    def __init__(self, ids: list[int | None], unknown: list[str]) -> None:
        self._ids = ids
        self.unknown = unknown
        """What has to be tokenized: the words that have no id, or the text itself."""

    @property
    def known(self) -> list[int]:
        """The ids of a text of which nothing has to be tokenized."""
        return cast("list[int]", self._ids)

    def fill(self, pieces: Iterable[list[int]]) -> list[int]:
        """All ids: those of each unknown word stand where it stands."""
        rest = iter(pieces)
        filled: list[int] = []
        for each in self._ids:
            if each is None:
                filled += next(rest)
            else:
                filled.append(each)
        return filled


class WholeWords:
    """Looks words up in one tokenizer's vocabulary. May be used from any thread."""

    def __init__(self, vocabulary: Mapping[str, int], *, is_uncased: bool) -> None:
        """Knows the words of the vocabulary."""
        self._is_uncased = is_uncased
        self._ids = {word: number for word, number in vocabulary.items() if _WORD.fullmatch(word)}

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "WholeWords | None":
        """Those of the tokenizer; None where it does not split as BERT's do or find the longest pieces first."""
        described = json.loads(tokenizer.to_str())
        normalizer, splitter, model = (described[part] or {} for part in ("normalizer", "pre_tokenizer", "model"))
        if (normalizer.get("type"), splitter.get("type"), model.get("type")) != _PLAIN or not normalizer["clean_text"]:
            return None
        if not all(each["content"].startswith(_SPECIAL) for each in described["added_tokens"]):
            return None
        longest = model["max_input_chars_per_word"]
        words = {word: number for word, number in model["vocab"].items() if len(word) <= longest}
        return cls(words, is_uncased=normalizer["lowercase"])

    def look_up(self, text: str) -> LookedUp:
        """The ids of the text's words, as far as they are known."""
        if not text.isascii() or _SPECIAL in text:
            return LookedUp([None], [text])
        if not text.isprintable() and not (text := text.translate(_SPACES)).isprintable():
            return LookedUp([None], [text])
        words = _WORD.findall(text.lower() if self._is_uncased else text)
        ids = list(map(self._ids.get, words))
        unknown = [word for word, number in zip(words, ids, strict=True) if number is None] if None in ids else []
        return LookedUp(ids, unknown)
