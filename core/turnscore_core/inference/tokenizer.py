"""Text into token ids with the bundle's own tokenizer file. Never pads, never cuts: callers decide what to keep."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import ClassVar, Self, cast
from weakref import WeakValueDictionary

from tokenizers import Tokenizer

_WORD = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9 ]")
_SPACES = str.maketrans("\n\r\t", "   ")
_PLAIN = ("BertNormalizer", "BertPreTokenizer", "WordPiece")
_SPECIAL = "["  # begins every special token of BERT, which the tokenizer finds before it looks for words


@dataclass(slots=True)
class LookedUp:
    ids: list[int | None]
    unknown: list[str]  # what has to be tokenized: the words that have no id, or the text itself

    def fill(self, pieces: Iterable[list[int]]) -> list[int]:
        """All ids: those of each unknown word stand where it stands."""
        rest = iter(pieces)
        filled: list[int] = []
        for each in self.ids:
            if each is None:
                filled += next(rest)
            else:
                filled.append(each)
        return filled


class WholeWords:
    """Looks words up in one tokenizer's vocabulary. May be used from any thread."""

    def __init__(self, vocabulary: Mapping[str, int], *, is_uncased: bool) -> None:
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
        if not text.isascii() or _SPECIAL in text:
            return LookedUp([None], [text])
        if not text.isprintable() and not (text := text.translate(_SPACES)).isprintable():
            return LookedUp([None], [text])
        words = _WORD.findall(text.lower() if self._is_uncased else text)
        ids = list(map(self._ids.get, words))
        unknown = [word for word, number in zip(words, ids, strict=True) if number is None] if None in ids else []
        return LookedUp(ids, unknown)


def read_tokenizer(file: Path) -> Tokenizer:
    """That of a `tokenizer.json`, which neither pads nor cuts. Raises RuntimeError where the file holds none."""
    try:
        found = Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises plain Exception
        raise RuntimeError(f"{file.name} is not a tokenizer file: {error}") from error
    found.no_padding()
    found.no_truncation()
    return found


_BERT, _ROBERTA = ("[PAD]", "[CLS]", "[SEP]", "[MASK]"), ("<pad>", "<s>", "</s>", "<mask>")


class TextTokenizer:
    """A fast tokenizer with the special tokens of a BERT or RoBERTa. `encode` may be called from any thread."""

    _in_use: ClassVar[WeakValueDictionary[bytes, Self]] = WeakValueDictionary()
    _lock: ClassVar[Lock] = Lock()

    @classmethod
    def of(cls, file: Path) -> Self:
        """That of the file; one for all scorers and versions whose files are equal, as long as one of them is in use.

        To read a file holds the interpreter for some 50 ms, in which no caller is answered. Raises RuntimeError as
        `read_tokenizer` and the constructor do.
        """
        try:
            digest = hashlib.sha256(file.read_bytes()).digest()
        except OSError as error:
            raise RuntimeError(f"{file.name} cannot be read: {error}") from error
        with cls._lock:
            known = cls._in_use.get(digest)
            if known is None:
                known = cls._in_use[digest] = cls(read_tokenizer(file), file.name)
            return known

    def __init__(self, tokenizer: Tokenizer, name: str) -> None:
        """Of one that neither pads nor cuts. Raises RuntimeError, with its `name`, where it lacks special tokens."""
        self._tokenizer, self._name = tokenizer, name
        self._words = WholeWords.of(tokenizer)
        is_roberta = tokenizer.token_to_id(_BERT[1]) is None and tokenizer.token_to_id(_ROBERTA[1]) is not None
        pad, first, separator, mask = _ROBERTA if is_roberta else _BERT
        self.pad_id = self.special(pad)
        self.first_id = self.special(first)
        self.separator_id = self.special(separator)
        self.separators = 2 if is_roberta else 1  # as many stand between the halves of a pair
        self.mask_id: int | None = tokenizer.token_to_id(mask)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text, without special tokens."""
        ids = self.encode_each(texts)
        return [ids[text] for text in texts]

    def encode_each(self, texts: Iterable[str]) -> dict[str, list[int]]:
        """The same by text, of each distinct one. A word that has to be tokenized is so once a call."""
        distinct = list(dict.fromkeys(texts))
        if self._words is None:
            return dict(zip(distinct, self._tokenize(distinct), strict=True))
        looked_up = [self._words.look_up(text) for text in distinct]
        left = list(dict.fromkeys([word for each in looked_up for word in each.unknown]))
        if left:
            pieces = dict(zip(left, self._tokenize(left), strict=True))
            ids = [each.fill(map(pieces.__getitem__, each.unknown)) for each in looked_up]
        else:
            ids = [cast("list[int]", each.ids) for each in looked_up]
        return dict(zip(distinct, ids, strict=True))

    def _tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def special(self, token: str) -> int:
        """The id of a special token. Raises RuntimeError where the tokenizer has no such token."""
        token_id = self._tokenizer.token_to_id(token)
        if token_id is None:
            raise RuntimeError(f"{self._name} has no {token} token")
        return token_id
