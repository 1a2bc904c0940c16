"""Tokenisation: how a text becomes words before words are compared. Every result names its tokenisation."""

import re
from collections.abc import Callable
from typing import Final

from turnscore_assessment.references.errors import ReferencesError

Tokens = tuple[str, ...]
Tokenise = Callable[[str], Tokens]

_WORD = re.compile(r"\w+(?:'\w+)?|[^\w\s]")


def split_blanks(text: str) -> Tokens:
    """Lower case, split on white space, without the marks `_go` and `_eos`; a full stop is a word like others.

    As the released code of Gupta et al. 2019 does (clean_split_sentence): for text that is tokenised already.
    """
    words = text.lower().strip().replace("_go ", "").replace(" _eos", "").split()
    return tuple(words) or (".",)


def split_words(text: str) -> Tokens:
    """Lower case, with punctuation apart from words: for text as people write it."""
    return tuple(_WORD.findall(text.lower())) or (".",)


TOKENISATIONS: Final[dict[str, Tokenise]] = {"blanks": split_blanks, "words": split_words}


def find_tokenisation(name: str) -> Tokenise:
    """Raises ReferencesError for an unknown name."""
    if name not in TOKENISATIONS:
        raise ReferencesError(f"no tokenisation is called {name}; choose one of {', '.join(TOKENISATIONS)}")
    return TOKENISATIONS[name]


def is_empty(text: str, tokenisation: str) -> bool:
    """Whether a text has no word, for which both tokenisations give a full stop, as the released code does."""
    return "." not in text and find_tokenisation(tokenisation)(text) == (".",)
