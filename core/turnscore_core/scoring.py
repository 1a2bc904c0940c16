"""From turns to scores: a turn that cannot be encoded or computed fails by itself; raw scores become replies'."""

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, chain, islice
from operator import attrgetter
from typing import cast

import turnscore_wire as wire
from turnscore_wire.requests import ScorerChoice

from turnscore_core.batches import Answer, PackCollector, TokenLimit, form_batches, padded_tokens, to_scoring_error
from turnscore_core.errors import FailedScoringError, InvalidRequestError, NotComputableError, ScoringError
from turnscore_core.inference.devices import CPU
from turnscore_core.inference.onnx_backend import OutOfMemoryError
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scorers.scorer import RawScore, Scorer, TokenPack, TurnToScore, count_tokens
from turnscore_core.scorers.turn_warnings import RESPONSE_CUT

# A pack's scores, one for each of its answers, or what the runtime raised when the pack stood alone.
PackResult = tuple[RawScore | FailedScoringError, ...] | Exception

_LOGGER = logging.getLogger("turnscore.scorers")
# Chosen: 64 turns at their limits take some 50 ms to tokenize, and a text that two pieces share is tokenized twice.
_PIECE = 64


def encode_in_pieces(
    loaded: LoadedScorer, turns: Sequence[TurnToScore], is_given_up: Callable[[], bool]
) -> tuple[list[TokenPack], Mapping[int, ScoringError]]:
    """As `encode_isolating`, some turns at a time; nothing more once no caller waits for them.

    A scorer that shares passes gets them together.
    """
    if loaded.scorer.shares_passes:
        return encode_isolating(loaded, turns)
    packs: list[TokenPack] = []
    failed: dict[int, ScoringError] = {}
    for start in range(0, len(turns), _PIECE):
        if is_given_up():
            break
        own, broken = encode_isolating(loaded, turns[start : start + _PIECE])
        packs += [moved(pack, start) for pack in own] if start else own
        failed.update((start + place, error) for place, error in broken.items())
    return packs, failed


def ask_together(
    packs: Sequence[TokenPack], failed: Mapping[int, ScoringError], asked: Sequence[Sequence[Scorer]]
) -> tuple[list[TokenPack], dict[int, ScoringError]]:
    """The packs and errors of turns as those of answers: of each turn one for each of its scorers, in order.

    The scorers share a pass (`Scorer.pass_key`).
    """
    ends = list(accumulate(map(len, asked), initial=0))
    spread = []
    for pack in packs:
        [place] = pack.answers
        count = len(asked[place])
        spread.append(
            dataclasses.replace(
                pack,
                answers=tuple(range(ends[place], ends[place + 1])),
                scorers=tuple(asked[place]),
                tokens=pack.tokens * count,
                warnings=pack.warnings * count,
            )
        )
    errors = {answer: error for place, error in failed.items() for answer in range(ends[place], ends[place + 1])}
    return spread, errors


def moved(pack: TokenPack, by: int) -> TokenPack:
    """The pack, answering turns that stand so many places later."""
    return dataclasses.replace(pack, answers=tuple(by + place for place in pack.answers))


def encode_isolating(
    loaded: LoadedScorer, turns: Sequence[TurnToScore]
) -> tuple[list[TokenPack], dict[int, ScoringError]]:
    """The turns' packs; when tokenizing them together fails, one by one, so that a broken turn fails alone."""
    try:
        packs = loaded.scorer.encode(turns)
        # A GPU's memory must hold all of a context, kept or not.
        return (list(map(loaded.scorer.for_queue, packs)) if loaded.device == CPU else packs), {}
    except InvalidRequestError as error:
        if len(turns) == 1:
            return [], {0: InvalidRequestError(error.message, field=f"options.{loaded.kind}.{error.field}")}
    except Exception as error:
        if len(turns) == 1:
            _LOGGER.error("tokenizing failed: %s", type(error).__name__, exc_info=error)
            return [], {0: FailedScoringError(f"{loaded.name} could not tokenize the text")}
    packs, failed = [], {}
    for place, turn in enumerate(turns):
        own, broken = encode_isolating(loaded, [turn])
        packs += [dataclasses.replace(pack, answers=(place,) * len(pack.answers)) for pack in own]
        if broken:
            failed[place] = broken[0]
    return packs, failed


def score_isolating(loaded: LoadedScorer, packs: Sequence[TokenPack], limit: TokenLimit) -> list[PackResult]:
    """The results of a batch, in order. A batch that fails is halved until the failing pack stands alone.

    Where memory ended, `limit` shrinks, so that the batches that follow are smaller.
    """
    try:
        scores = loaded.scorer.score(packs)
        wanted = sum([len(pack.answers) for pack in packs])
        if len(scores) != wanted:
            raise FailedScoringError(f"{loaded.name} answered {len(scores)} of {wanted} turns")
    except Exception as error:
        if isinstance(error, OutOfMemoryError):
            limit.shrink(sum(map(padded_tokens, packs)))
        if len(packs) == 1:
            return [error]
        middle = len(packs) // 2
        return score_isolating(loaded, packs[:middle], limit) + score_isolating(loaded, packs[middle:], limit)
    if limit.tokens < limit.most:
        limit.recover()
    results: list[RawScore | FailedScoringError] = []
    for score in scores:
        is_number = math.isfinite(score.value) and (
            not score.details or all(map(math.isfinite, score.details.values()))
        )
        results.append(score if is_number else NotComputableError(f"{loaded.name} gave a score that is not a number"))
    in_order = iter(results)
    return [tuple(islice(in_order, len(pack.answers))) for pack in packs]


_TURNS_AT_ONCE = 512  # independent turns that are encoded together at most. Chosen: enough of like width
_Compute = Callable[[Sequence[TokenPack]], list[PackResult]]
# Calls a function with each of some batches, as `map` does, and may do so in several threads.
RunAll = Callable[[_Compute, Sequence[Sequence[TokenPack]]], Iterable[list[PackResult]]]


def score_groups(
    loaded: LoadedScorer,
    groups: Sequence[Sequence[TurnToScore]],
    limit: TokenLimit | None = None,
    run_all: RunAll = map,
    asked: Sequence[Sequence[Scorer]] | None = None,
) -> list[list[Answer]]:
    """What a scorer says of turns, trimmed already, from batches of turns of like width across all groups.

    Where the scorer `shares_passes`, turns are computed together within their group alone, so that no group's numbers
    depend on the others. A turn that fails has its error. With `asked`, each group is one turn, of which these scorers
    of the same pass are asked, and has an answer of each.
    """
    together = groups if loaded.scorer.shares_passes else [list(chain.from_iterable(groups))]
    packs: list[TokenPack] = []
    answers: dict[int, Answer] = {}
    start = 0
    for turns in together:
        own, failed = encode_isolating(loaded, turns)
        packs += [moved(pack, start) for pack in own] if start else own
        answers.update((start + place, error) for place, error in failed.items())
        start += len(turns)
    counts = list(map(len, groups))
    if asked is not None:
        packs, errors = ask_together(packs, cast("Mapping[int, ScoringError]", answers), asked)
        answers, counts = dict(errors), list(map(len, asked))
    limit = limit or TokenLimit(loaded.budget.most_tokens)
    batches = list(form_batches(packs, limit.tokens, loaded.budget.waste))
    collector = PackCollector(loaded.scorer)
    for batch, results in zip(batches, run_all(partial(score_isolating, loaded, limit=limit), batches), strict=True):
        for pack, result in zip(batch, results, strict=True):
            for place, answer in collector.take(pack, scores_of(pack, result)):
                if not isinstance(answers.get(place), ScoringError):  # the first error of a turn's packs counts
                    answers[place] = answer
    none = FailedScoringError(f"{loaded.name} gave no score")
    in_order = iter(range(sum(counts)))
    return [[answers.get(next(in_order), none) for _ in range(count)] for count in counts]


def scores_of(pack: TokenPack, result: PackResult) -> Sequence[Answer]:
    if not isinstance(result, Exception):
        return result
    _LOGGER.error("scoring failed: %s", type(result).__name__, exc_info=result)
    return [to_scoring_error(result)] * len(pack.answers)


def score_turns(loaded: LoadedScorer, turns: Sequence[TurnToScore]) -> list[RawScore]:
    """The scores of turns, in order. Raises the first turn's error."""
    trimmed = [loaded.scorer.trim(turn) for turn in turns]
    groups = [trimmed[start : start + _TURNS_AT_ONCE] for start in range(0, len(turns), _TURNS_AT_ONCE)]
    scores: list[RawScore] = []
    for answer in chain.from_iterable(score_groups(loaded, groups)):
        if isinstance(answer, ScoringError):
            raise answer
        scores.append(answer)
    return scores


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What the scorers said of one item, and the slowest one's times in seconds."""

    scores: dict[str, wire.Score] = field(default_factory=dict)
    errors: dict[str, ScoringError] = field(default_factory=dict)
    vectors: dict[str, bytes] = field(default_factory=dict)  # the text's vector, from scorers that make one
    tokenize: float = 0.0
    queue: float = 0.0
    inference: float = 0.0
    cache: float = 0.0


def score_of(loaded: LoadedScorer, turn: TurnToScore, raw: RawScore, *, is_cached: bool) -> wire.Score:
    """The score as it travels; `turn` is as the scorer was given it."""
    scorer, dropped = loaded.scorer, raw.tokens.dropped or int(turn.is_cut)
    label = loaded.label(raw)
    warnings = raw.warnings
    if turn.is_response_cut and RESPONSE_CUT not in warnings:
        warnings = (*warnings, RESPONSE_CUT)
    return wire.Score(
        value=raw.value,
        percentile=loaded.percentile(raw),
        details=raw.details,
        model=loaded.model,
        tokens=count_tokens(raw.tokens.used, dropped, dropped > 0),
        cached=is_cached,
        warnings=list(warnings),
        label=label,
        reasons=loaded.reasons(raw, label) if scorer.reason_heads else [],
        signals=loaded.signals(raw) if scorer.signal_thresholds else [],
        stand_in=loaded.bundle.manifest.stand_in,
    )


def score_reply(outcome: Outcome, request_id: str, started_at: float, request: wire.ScoreRequest) -> wire.ScoreReply:
    """The reply of one turn. Raises the first error where no scorer answered."""
    if not outcome.scores:
        raise next(iter(outcome.errors.values()))
    place = request.place() if request.messages else {}
    return wire.ScoreReply(
        request_id=request_id,
        scores=outcome.scores,
        errors=error_details(outcome),
        timing_ms=timing_of([outcome], started_at),
        index=place.get("index"),
        skipped=place.get("skipped", 0),
    )


def dialogue_reply(
    request: wire.DialogueRequest,
    request_id: str,
    started_at: float,
    places: Sequence[int],
    outcomes: Sequence[Outcome],
    aggregates: dict[str, wire.DialogueAggregate],
) -> wire.DialogueReply:
    """The reply of a whole dialogue, of which the turns at these places were scored. Raises as `score_reply`."""
    if not any(outcome.scores for outcome in outcomes):
        raise next(error for outcome in outcomes for error in outcome.errors.values())
    mapped = request.mapped if request.messages else None
    return wire.DialogueReply(
        request_id=request_id,
        turns=[
            wire.DialogueTurnScores(
                index=mapped.indices[place] if mapped else place, scores=outcome.scores, errors=error_details(outcome)
            )
            for place, outcome in zip(places, outcomes, strict=True)
        ],
        dialogue=aggregates,
        timing_ms=timing_of(outcomes, started_at),
        skipped=mapped.skipped if mapped else 0,
    )


def error_details(outcome: Outcome) -> dict[str, wire.ErrorDetail]:
    return {name: error.detail() for name, error in outcome.errors.items()}


def timing_of(outcomes: Sequence[Outcome], started_at: float) -> wire.Timing:
    return wire.Timing(
        total=1000 * (time.monotonic() - started_at),
        tokenize=1000 * max(map(attrgetter("tokenize"), outcomes)),
        queue=1000 * max(map(attrgetter("queue"), outcomes)),
        inference=1000 * max(map(attrgetter("inference"), outcomes)),
        cache=1000 * max(map(attrgetter("cache"), outcomes)),
    )


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point on the monotonic clock after which an answer is worthless; passed down explicitly."""

    expires_at: float

    @classmethod
    def after_ms(cls, milliseconds: float) -> "Deadline":
        return cls(time.monotonic() + milliseconds / 1000)

    def remaining_seconds(self) -> float:
        """Seconds left; negative once it has passed."""
        return self.expires_at - time.monotonic()


class ComponentOptions(dict[str, object]):
    """The options of the scorers that a combination is made of, by name."""


_NO_CHOICE = ScorerChoice()


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One turn to score with the request's choices."""

    turn: TurnToScore  # as it was said, without any scorer's options
    asked: Mapping[str, object]  # the scorers asked for, in that order, with their options
    deadline: Deadline
    choice: ScorerChoice = _NO_CHOICE  # what the request chose for all of its turns
    # The names under which other versions than the served ones work for it, by scorer.
    versions: Mapping[str, str] = field(default_factory=dict)
    _turns: dict[str, TurnToScore] = field(default_factory=dict, init=False, repr=False, compare=False)

    def turn_for(self, loaded: LoadedScorer) -> TurnToScore:
        """The turn as that scorer, and any of the same pass, takes it, without what it cannot read; made once."""
        turn = self._turns.get(loaded.pass_key)
        if turn is None:
            name = loaded.kind
            if name in self.asked:
                options = self.asked[name]
            else:
                behind = (each for each in self.asked.values() if isinstance(each, ComponentOptions) and name in each)
                options = next(behind)[name]
            sent = (self.choice.options or {}).get(name, {})
            whole = TurnToScore(self.turn.context, self.turn.response, options=options, asked=sent)
            turn = self._turns[loaded.pass_key] = loaded.scorer.trim(whole)
        return turn
