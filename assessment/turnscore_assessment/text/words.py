"""Words of English text as dialogue corpora write it: clitics set apart (`i 'm`) are joined, punctuation is none."""

import re

_APART = re.compile(r"\s+(?=(?:n['\u2019]t|['\u2019](?:s|m|d|re|ve|ll))\b)", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_LETTER = re.compile(r"[^\W\d_]")
_SENTENCE_END = re.compile(r"[.!?]+(?:[\"'\u201d\u2019)\]]*)(?=\s|$)")


def join_clitics(text: str) -> str:
    """`i 'm sure you do n't` as `i'm sure you don't`."""
    return _APART.sub("", text)


def split_words(text: str) -> list[str]:
    """Words and numbers, as written."""
    return _WORD.findall(join_clitics(text))


def count_sentences(text: str) -> int:
    """Parts with a word that a full stop, a question or an exclamation mark ends, the last one ended or not."""
    return sum(bool(_LETTER.search(part)) for part in _SENTENCE_END.split(text))


def has_letter(word: str) -> bool:
    """Whether it can be read aloud as a word: numbers cannot be counted in syllables."""
    return bool(_LETTER.search(word))
