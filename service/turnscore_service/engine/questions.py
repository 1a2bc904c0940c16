"""Questions: the turns of one call, as one scorer is to see them. Equal ones are asked once.

What is asked together is a group: for most scorers one turn; for one that computes a dialogue's turns in one pass, all
of the dialogue's. A group is computed whole or known whole: what else is known does not change its numbers.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from turnscore_core.errors import FailedScoringError, ScoringError
from turnscore_core.scorers.fields import Fields
from turnscore_core.scorers.loaded_scorer import LoadedScorer
from turnscore_core.scorers.parts import ScorePart, parts_reader
from turnscore_core.scorers.scorer import BuildsPlans, TokenPack, TurnToScore

from turnscore_service.engine.lanes import Lanes
from turnscore_service.engine.shared_scores import ScorerStore
from turnscore_service.scheduling.isolation import PackResult, encode_isolating, moved, to_scoring_error
from turnscore_service.scheduling.items import Item
from turnscore_service.scheduling.outcomes import Outcome, score_of
from turnscore_service.scheduling.pack_answers import PieceCollector

_LOGGER = logging.getLogger("turnscore.engine")

Said = tuple[Item, Outcome]
"""A system turn, and where its scores go."""
Answer = ScorePart | ScoringError


@dataclass(slots=True)
class _Group:
    """Turns that are asked together, and everywhere that the same was said."""

    turns: list[TurnToScore]
    askers: list[list[Said]] = field(default_factory=list)


class ScorerQuestions:
    """One scorer's part of the engine."""

    def __init__(self, loaded: LoadedScorer, lanes: Lanes, store: ScorerStore | None) -> None:
        self.loaded = loaded
        self._lanes = lanes
        self._store = store
        self._reader = parts_reader(loaded.scorer)
        self._shares_passes = isinstance(loaded.scorer, BuildsPlans)
        self.turns_computed = 0

    def prepare(self, dialogue: Sequence[Said]) -> Sequence[Fields]:
        """What the scorer reads of each turn of the dialogue. Raises what its texts make the scorer raise."""
        return [self._reader.inputs_of(item.turn_for(self.loaded)) for item, _ in dialogue]

    def answer(self, dialogues: Sequence[tuple[Sequence[Said], Sequence[Fields]]]) -> None:
        """Puts the scorer's score, or its error, into each turn's outcome."""
        groups = self._group(dialogues)
        if self._store is not None:
            groups = self._answer_known(self._store, groups)
        turns = [turn for group in groups for turn in group.turns]
        self.turns_computed += len(turns)
        answers = self._compute(groups, turns)
        place = 0
        for group in groups:
            self._deliver(group, answers[place : place + len(group.turns)])
            place += len(group.turns)
        if self._store is not None:
            pairs = zip(turns, answers, strict=True)
            self._store.keep([(turn, each) for turn, each in pairs if isinstance(each, ScorePart)])

    def _group(self, dialogues: Sequence[tuple[Sequence[Said], Sequence[Fields]]]) -> list[_Group]:
        groups: dict[tuple[Fields, ...], _Group] = {}
        for said, inputs in dialogues:
            asked_together = [said] if self._shares_passes else [[each] for each in said]
            keys = [tuple(inputs)] if self._shares_passes else [(each,) for each in inputs]
            for key, together in zip(keys, asked_together, strict=True):
                if (group := groups.get(key)) is None:
                    group = groups[key] = _Group([item.turn_for(self.loaded) for item, _ in together])
                group.askers.append(list(together))
        return list(groups.values())

    def _answer_known(self, store: ScorerStore, groups: Sequence[_Group]) -> list[_Group]:
        """The groups that are not known."""
        unknown = []
        for group, found in zip(groups, store.find([each.turns for each in groups]), strict=True):
            if found is None:
                unknown.append(group)
            else:
                self._deliver(group, found, is_cached=True)
        return unknown

    def _compute(self, groups: Sequence[_Group], turns: Sequence[TurnToScore]) -> list[Answer]:
        answers: list[Answer] = [FailedScoringError(f"{self.loaded.name} gave no score")] * len(turns)
        packs, failed = self._encode(groups, turns)
        for place, error in failed.items():
            answers[place] = error
        collector = PieceCollector(self.loaded.scorer)
        for pack, result in self._lanes.compute(packs):
            for number, place in enumerate(pack.answers):
                answer = _read_answer(collector, pack, number, result)
                if answer is not None and place not in failed:
                    answers[place] = answer
                if isinstance(answer, ScoringError):
                    failed[place] = answer
        return answers

    def _encode(
        self, groups: Sequence[_Group], turns: Sequence[TurnToScore]
    ) -> tuple[list[TokenPack], dict[int, ScoringError]]:
        if not self._shares_passes:
            return encode_isolating(self.loaded, turns)
        packs: list[TokenPack] = []
        all_failed: dict[int, ScoringError] = {}
        start = 0
        for group in groups:
            own, broken = encode_isolating(self.loaded, group.turns)
            packs += [moved(pack, start) for pack in own]
            all_failed.update((start + place, error) for place, error in broken.items())
            start += len(group.turns)
        return packs, all_failed

    def _deliver(self, group: _Group, answers: Sequence[Answer], *, is_cached: bool = False) -> None:
        name = self.loaded.name
        for asker in group.askers:
            for (item, outcome), answer in zip(asker, answers, strict=True):
                if isinstance(answer, ScoringError):
                    outcome.errors[name] = answer
                else:
                    turn = item.turn_for(self.loaded)
                    outcome.scores[name] = score_of(self.loaded, turn, answer, is_cached=is_cached)


def _read_answer(collector: PieceCollector, pack: TokenPack, number: int, result: PackResult) -> Answer | None:
    """The turn's score or error; None while packs of it are still being computed."""
    if isinstance(result, Exception):
        _LOGGER.error("scoring failed: %s", type(result).__name__, exc_info=result)
        return to_scoring_error(result)
    try:
        whole = collector.take(pack, number, result[number])
    except Exception as error:
        return to_scoring_error(error)
    return None if whole is None else ScorePart(whole, pack.tokens[number])
