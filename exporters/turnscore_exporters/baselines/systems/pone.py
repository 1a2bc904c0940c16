"""PONE (Lan et al. 2020): contextualised RUBER with weighted negatives, and with more positives that it labels itself.

Candidates for positives are altered replies and replies to similar queries. Every few epochs the current model labels
them, with dropout off: those it is sure of, as fitting or as wrong, are trained on; the rest is left out.
"""

import random
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from turnscore_exporters.baselines.material.asked import Floats
from turnscore_exporters.baselines.material.exchanges import Exchange, split_words
from turnscore_exporters.baselines.material.samplers import ReplyPool
from turnscore_exporters.baselines.systems.contextual import Judgement

COPIES = 5
"""Candidates per true reply. Specified: five to six."""
SURE = 0.1
"""A candidate counts as fitting from 1 - SURE on, and as wrong up to SURE. Chosen; PONE names it tau."""
ALTERED = 0.1
"""Share of a reply's words that are altered, as in EDA (Wei and Zou 2019). Specified."""
NEAREST = 3
"""How many of the candidates are replies to similar queries; the rest are altered copies. Chosen."""
QUERIES_AT_ONCE = 512

Judge = Callable[[Sequence[tuple[str, str]]], Floats]
Vectors = NDArray[np.float32]


def find_candidates(pool: ReplyPool, queries: Vectors, seed: int = 0) -> list[tuple[int, str]]:
    """Several (index, text) for each exchange: replies to the most similar queries, and altered copies.

    `queries` [exchanges, width] are the queries' vectors, scaled to length 1. PONE also writes replies by a language
    model; replies to the nearest queries replace these.
    """
    found: list[tuple[int, str]] = []
    for start in range(0, len(pool), QUERIES_AT_ONCE):
        likeness = queries[start : start + QUERIES_AT_ONCE] @ queries.T
        for row in range(len(likeness)):
            index = start + row
            near = _nearest(likeness[row], index, pool.exchanges)
            found += [(index, pool.exchanges[other].reply) for other in near]
            generator = random.Random(f"{seed} {index}")  # noqa: S311
            for _ in range(COPIES - len(near)):
                found.append((index, alter_reply(pool.exchanges[index].reply, generator)))
    return found


def alter_reply(reply: str, generator: random.Random) -> str:
    """The reply with a tenth of its words, at least one, swapped, doubled elsewhere or dropped."""
    words = split_words(reply)
    for _ in range(max(1, round(ALTERED * len(words)))):
        way, place = generator.randrange(3), generator.randrange(len(words))
        if way == 0:
            other = generator.randrange(len(words))
            words[place], words[other] = words[other], words[place]
        elif way == 1:
            words.insert(generator.randrange(len(words) + 1), words[place])
        elif len(words) > 1:
            del words[place]
    return " ".join(words)


def filter_candidates(
    exchanges: Sequence[Exchange], candidates: Sequence[tuple[int, str]], judge: Judge, sure: float = SURE
) -> list[Judgement]:
    """The candidates that `judge` is sure of, with its label."""
    pairs = [(exchanges[index].query, text) for index, text in candidates]
    kept: list[Judgement] = []
    for (query, text), probability in zip(pairs, judge(pairs), strict=True):
        if probability >= 1 - sure or probability <= sure:
            kept.append(Judgement(query, text, float(probability >= 0.5)))
    return kept


def _nearest(likeness: NDArray[np.float32], index: int, exchanges: Sequence[Exchange]) -> list[int]:
    most = min(4 * NEAREST, len(likeness) - 1)
    ranked = np.argpartition(-likeness, most)[: most + 1]
    ranked = ranked[np.argsort(-likeness[ranked], kind="stable")]
    own = exchanges[index].dialogue
    return [int(each) for each in ranked if exchanges[each].dialogue != own][:NEAREST]
