"""Tokenizing: one scorer's turns into packs, in a thread, or at once where handing over would take longer."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from functools import partial

from turnscore_core.errors import ScoringError
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scorers.scorer import BuildsPlans, TokenPack, TurnToScore
from turnscore_core.scoring import encode_in_pieces, encode_isolating

from turnscore_service.scheduling.stages import Stage, StageWatch

Encoded = tuple[list[TokenPack], Mapping[int, ScoringError]]
"""The packs, and by its place the error of each turn that could not be tokenized."""

_AT_ONCE_SECONDS = 0.001
"""The longest work done on the event loop, of texts none of whose words are known; plain English takes a tenth. Chosen:
to hand work over and take it back costs 0.1 to 0.15 ms of CPU (measured on 2 CPUs), and the loop's other work waits
meanwhile."""


class Tokenizing:
    """Belongs to one event loop."""

    def __init__(self, loaded: LoadedScorer, watch: StageWatch | None = None) -> None:
        self._loaded = loaded
        self._planner = loaded.scorer if isinstance(loaded.scorer, BuildsPlans) else None
        self._stage = Stage(f"{loaded.name}-tokenizer", 1, partial(loaded.scorer.encode, [loaded.proof]), watch)

    def is_quick(self, turns: Sequence[TurnToScore], chars: int) -> bool:
        """Whether the turns, of which the scorer reads so many characters, are to be tokenized at once."""
        if self._loaded.tokenizing.seconds(len(turns), chars) > _AT_ONCE_SECONDS:
            return False
        return self._planner is None or all(map(self._planner.is_planned, turns))

    def encode_at_once(self, turns: Sequence[TurnToScore]) -> Encoded:
        """The turns' packs."""
        return encode_isolating(self._loaded, turns)

    def encode(self, turns: Sequence[TurnToScore]) -> "asyncio.Future[Encoded]":
        """The turns' packs, made in the stage: raises as `Stage.run` does. Stops soon after the future is cancelled."""
        given_up = threading.Event()
        encoding = self._stage.run(encode_in_pieces, self._loaded, turns, given_up.is_set)
        encoding.add_done_callback(lambda _: given_up.set())
        return encoding

    def close(self) -> None:
        """Ends the stage; waiting work is dropped."""
        self._stage.close()

    def retire(self) -> None:
        """As `Stage.retire`."""
        self._stage.retire()
