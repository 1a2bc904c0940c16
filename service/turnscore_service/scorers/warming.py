"""Warming: runs the largest batches that a scorer may meet on its device, and so finds how large they may be."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from turnscore_wire import Turn

from turnscore_service.inference.batch_budget import cuda_budget, find_most_tokens
from turnscore_service.inference.packing import padded_width
from turnscore_service.scorers.loading import LoadedScorer
from turnscore_service.scorers.scorer import TokenPack, TurnToScore


def measure_budget(loaded: LoadedScorer, free_bytes: Callable[[], int], may_take_bytes: int) -> LoadedScorer:
    """The scorer with the batch budget that its share of the device's memory allows; takes that memory at once."""
    most_tokens = find_most_tokens(
        lambda tokens: loaded.scorer.score(list(widest_packs(loaded, tokens))), free_bytes, may_take_bytes
    )
    return replace(loaded, budget=cuda_budget(most_tokens))


def widest_packs(loaded: LoadedScorer, tokens: int) -> Iterator[TokenPack]:
    """Packs of the widest rows that the scorer makes, no two alike, of at least that many tokens with padding."""
    number, found = 0, 0
    while found < tokens:
        for pack in loaded.scorer.encode([_long_turn(number, loaded.bundle.manifest.token_limit)]):
            yield pack
            found += len(pack.rows) * padded_width(pack.width)
        number += 1


def _long_turn(number: int, words: int) -> TurnToScore:
    """More words than the scorer reads, in context and response; whichever end is cut, the other tells them apart."""
    text = f"{number} {'and then ' * (words // 2)}{number}"
    return TurnToScore([Turn(speaker="user", text=text)], text)
