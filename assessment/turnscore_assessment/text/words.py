"""Words of English text as dialogue corpora write it: clitics set apart (`i 'm`) are joined, punctuation is dropped."""

import re

_APART = re.compile(r"\s+(?=(?:n['\u2019]t|['\u2019](?:s|m|d|re|ve|ll))\b)", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_LETTER = re.compile(r"[^\W\d_]")
_SENTENCE_END = re.compile(r"[.!?]+(?:[\"'\u201d\u2019)\]]*)(?=\s|$)")


def join_clitics(text: str) -> str:
    """The text with `i 'm sure you do n't` as `i'm sure you don't`."""
    return _APART.sub("", text)


def split_words(text: str) -> list[str]:
    """Words and numbers, as written."""
    return _WORD.findall(join_clitics(text))


def count_sentences(text: str) -> int:
    """The parts with a word that end in a full stop, question mark or exclamation mark, or at the text's end."""
    return sum(bool(_LETTER.search(part)) for part in _SENTENCE_END.split(text))


def has_letter(word: str) -> bool:
    """Whether it can be read aloud as a word: a number's syllables cannot be counted."""
    return bool(_LETTER.search(word))
