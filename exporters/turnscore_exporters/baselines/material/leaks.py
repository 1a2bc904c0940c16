"""Leaks: texts of judged turns that a training could have seen, and references that equal the response."""

from collections.abc import Iterable, Sequence

from turnscore_exporters.baselines.material.asked import Asked
from turnscore_exporters.baselines.material.exchanges import Exchange, normalize

TELLING_WORDS = 5
"""A text of so many words is no common phrase. Chosen, as for the split of rated turns."""


def without_judged(exchanges: Sequence[Exchange], judged: Iterable[Asked]) -> list[Exchange]:
    """The exchanges of dialogues that share no long text with a judged turn's response, context or references."""
    known = {
        text
        for each in judged
        for text in map(normalize, (*each.context, each.response, *each.references))
        if len(text.split()) >= TELLING_WORDS
    }
    seen = {each.dialogue for each in exchanges if known & {normalize(each.query), normalize(each.reply)}}
    return [each for each in exchanges if each.dialogue not in seen]


def true_references(response: str, references: Iterable[str]) -> tuple[str, ...]:
    """The references that differ from the response: an equal one would give any response the full score."""
    own = normalize(response)
    return tuple(each for each in references if each.strip() and normalize(each) != own)
