"""Text into token ids with the bundle's own tokenizer file. Never pads, never cuts: callers decide what to keep."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer


class TextTokenizer:
    """A fast tokenizer with the special tokens of a BERT model. `encode` may be called from any thread."""

    def __init__(self, file: Path) -> None:
        """Loads `tokenizer.json`. Raises RuntimeError where it is not a tokenizer or lacks BERT's special tokens."""
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # tokenizers raises plain Exception
            raise RuntimeError(f"{file.name} is not a tokenizer file: {error}") from error
        self._file = file
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.pad_id = self.special("[PAD]")
        self.first_id = self.special("[CLS]")
        self.separator_id = self.special("[SEP]")

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text, without special tokens."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def special(self, token: str) -> int:
        """The id of a special token. Raises RuntimeError where the tokenizer has no such token."""
        token_id = self._tokenizer.token_to_id(token)
        if token_id is None:
            raise RuntimeError(f"{self._file.name} has no {token} token")
        return token_id
