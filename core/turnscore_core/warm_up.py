"""Warm-up: runs the largest batches that a scorer may meet, so that the memory they need is taken at the start."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from turnscore_wire import Turn

from turnscore_core.batches import SizedPack, cuda_budget, find_most_tokens, grow_batch
from turnscore_core.inference.onnx_backend import OutOfMemoryError
from turnscore_core.inference.onnx_library import DeviceError
from turnscore_core.inference.padding import padded_width
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scorers.scorer import TokenPack, TurnToScore

_LONGEST_REST_SECONDS = 2.0
"""Between two batches beside callers. Chosen: a full machine must not make a switch last for ever."""
_DIALOGUE_TURNS = 40
"""System turns of the dialogue that memory is taken for; longer ones are computed in parts. Chosen."""

_LONGEST_WORDS = 10_000
"""More than any scorer reads of a turn: quality reads it in as many rows as its bundle allows. Chosen."""


def fill_arenas(loaded: LoadedScorer, most_tokens: int, *, beside_callers: bool = False) -> None:
    """Runs batches of `most_tokens` of several forms, on all lanes at once.

    ONNX Runtime keeps the memory of the largest batch of each form. Memory that is not taken now would be taken bit
    by bit while the service runs, for minutes. `beside_callers`, half of the lanes run, and rest after each batch as
    long as it took: what the other half needs is taken when callers fill it.
    """
    lanes = max(1, loaded.concurrency.lanes // 2) if beside_callers else loaded.concurrency.lanes
    with ThreadPoolExecutor(lanes) as executor:
        for turns in _forms(loaded, most_tokens):
            packs = sorted(loaded.scorer.encode(turns), key=lambda pack: pack.width)
            sizes = list(map(SizedPack, packs))
            largest = max(range(len(sizes)), key=lambda place: (sizes[place].padded, sizes[place].real))
            low, high = grow_batch(sizes, largest, most_tokens, loaded.budget.waste)
            started_at = time.monotonic()
            list(executor.map(loaded.scorer.score, [packs[low:high]] * lanes))
            if beside_callers:
                time.sleep(min(_LONGEST_REST_SECONDS, time.monotonic() - started_at))


def _forms(loaded: LoadedScorer, most_tokens: int) -> Iterator[Sequence[TurnToScore]]:
    """Turns of the widest rows, of medium and of the narrowest, one beyond any batch, and all of a long dialogue's."""
    token_limit = loaded.bundle.manifest.token_limit
    for words in (token_limit, max(1, token_limit // 6), 1):
        yield [_long_turn(number, words) for number in range(most_tokens // (2 * words) + 1)]
    longest = _long_turn(0, _LONGEST_WORDS)
    if loaded.scorer.estimate_tokens(longest) > most_tokens:
        yield [longest]
    said = [_long_turn(number, token_limit // 60).response for number in range(2 * _DIALOGUE_TURNS)]
    turns = [Turn(speaker="system" if number % 2 else "user", text=text) for number, text in enumerate(said)]
    yield [TurnToScore(turns[:number], turns[number].text) for number in range(1, len(turns), 2)]


def fill_device(loaded: LoadedScorer, most_tokens: int) -> None:
    """Runs a batch of that many tokens in every lane of a CUDA device, so that the memory for it is taken at once.

    Raises DeviceError where there is not enough.
    """
    packs = list(widest_packs(loaded, most_tokens))
    try:
        with ThreadPoolExecutor(loaded.concurrency.lanes) as executor:
            list(executor.map(loaded.scorer.score, [packs] * loaded.concurrency.lanes))
    except OutOfMemoryError as error:
        raise DeviceError(
            f"{loaded.device} has no room for {loaded.bundle.manifest.reference} beside what runs there"
        ) from error


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
    """Context and response of that many words and a few more; whichever end is cut, turns differ by the other."""
    text = f"{number} {'and then ' * (words // 2)}{number}"
    return TurnToScore([Turn(speaker="user", text=text)], text)
