"""Dialogue text into the tokens of a GPT-2-type language model: turns joined by the end-of-text token, one first.

Never pads. Text that looks like the end-of-text token is text: nobody can put a turn into another's mouth.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tokenizers import Tokenizer

Join = Literal["stripped", "spaced"]
"""How a turn meets the separators beside it: `stripped`, without spaces, as DialoGPT was trained; `spaced`, with one on
either side, as current tokenizers read the text that published FED code puts together."""


class DialogueTokenizer:
    """A byte-level BPE whose end-of-text token has the id `eos_id`. May be used from any thread."""

    def __init__(self, file: Path, eos_id: int, join: Join) -> None:
        """Loads `tokenizer.json`. Raises RuntimeError where it is no tokenizer or has no such token."""
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # tokenizers raises plain Exception
            raise RuntimeError(f"{file.name} is not a tokenizer file: {error}") from error
        if self._tokenizer.id_to_token(eos_id) is None:
            raise RuntimeError(f"{file.name} has no token {eos_id}, the manifest's end-of-text token")
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._tokenizer.encode_special_tokens = True
        self._join = join
        self.eos_id = eos_id

    def encode_turns(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text as a turn that another follows, without separators."""
        return self._encode([self.spoken(text) for text in texts])

    def spoken(self, text: str) -> str:
        """A turn's text as it stands between the separators."""
        return text.strip() if self._join == "stripped" else f" {text} "

    def encode_follow_ups(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text as the last turn: nothing stands after it."""
        return self._encode([text.strip() if self._join == "stripped" else f" {text}" for text in texts])

    def join(self, turns: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Separator, turn, separator, turn, ..., separator: what a follow-up is predicted from."""
        joined = [self.eos_id]
        for turn in turns:
            joined += [*turn, self.eos_id]
        return tuple(joined)

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
