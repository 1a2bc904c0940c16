"""FED's plans: everything about a question that does not depend on the turn, made once and kept for a while.

Making one takes milliseconds: on the event loop nothing but `peek` is called. What is kept is bounded in bytes, and a
question that is refused leaves nothing.
"""

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from turnscore_core.errors import InvalidRequestError
from turnscore_core.scorers.fed.batch import FollowUpTree, build_tree
from turnscore_core.scorers.fed.questions import DialogueTokenizer, FedBundleOptions, FedQuestion, FedQuestions, Loss
from turnscore_core.scorers.scorer import PERCENTILE_SUFFIX, RawScore, interpolate

Floats = NDArray[np.float64]
Curve = Sequence[float]  # the values at percentile 0, 1, ..., 100


class FedReference:
    """The values of the bundle's reference turns on every quality that the bundle knows, by loss."""

    def __init__(self, file: Path, options: FedBundleOptions) -> None:
        """Reads the file. Raises RuntimeError where it is not what the options promise."""
        self._options = options
        self._names = list(options.qualities)
        self._curve = lru_cache(1024)(self._make_curve)  # 3.3 KB each
        try:
            with np.load(file, allow_pickle=False) as arrays:
                self._values: dict[str, Floats] = {loss: arrays[loss].astype(np.float64) for loss in arrays.files}
        except (OSError, ValueError) as error:
            raise RuntimeError(f"{file.name} cannot be read: {error}") from error
        for loss, values in self._values.items():
            if values.ndim != 2 or values.shape[1] != len(self._names):
                raise RuntimeError(f"{file.name}: {loss} has no value for each of {len(self._names)} qualities")

    def score(self, question: FedQuestion, values: Sequence[float]) -> RawScore:
        """The mean of the qualities' values, and each with its percentile in `details`.

        Without percentiles where no reference turn was scored so: for qualities that are not the bundle's.
        """
        details: dict[str, float] = {}
        places = [self._place(name, quality) for name, quality in question.qualities]
        for (name, _), value, place in zip(question.qualities, values, places, strict=True):
            details[name] = value
            if place is not None and (curve := self._curve((place,), question.loss)):
                details[name + PERCENTILE_SUFFIX] = interpolate(value, curve)
        mean = float(np.mean(values))
        known = tuple(place for place in places if place is not None)
        curve = self._curve(known, question.loss) if len(known) == len(places) else None
        percentile = None if curve is None else interpolate(mean, curve)
        return RawScore(mean, details, percentile=percentile, is_comparable=percentile is not None)

    def _place(self, name: str, quality: object) -> int | None:
        return self._names.index(name) if self._options.qualities.get(name) == quality else None

    def _make_curve(self, places: Sequence[int], loss: Loss) -> Curve | None:
        if loss not in self._values:
            return None
        curve: Curve = np.percentile(self._values[loss][:, list(places)].mean(1), range(101)).tolist()
        return curve


KEPT_BYTES = 4 * 1024 * 1024  # of all plans together; FED's own question takes 40 KB, a caller's largest 300 KB
MAX_TREE_TOKENS = 512  # of a caller's question in one pass: half of what a batch may have on a CPU. FED's own have 260
# What Python takes for a follow-up besides the trees: its text, its places and their lists. Measured, more rather than
# less: up to 200 characters of one byte each, 350.
_BYTES_PER_TEXT = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class FedPlan:
    """A question with its trees of follow-ups."""

    question: FedQuestion
    # One, or several among which a caller's many follow-ups are dealt out in order, each for a pass of its own.
    trees: Sequence[FollowUpTree]
    # For each quality the places, over all trees, of its negative and of its positive follow-ups.
    follow_ups: Sequence[tuple[Sequence[int], Sequence[int]]]
    room: int  # tokens of a turn that fit the window with the longest follow-up

    @property
    def with_context(self) -> bool:
        return self.question.loss == "whole_sequence"

    @property
    def fed_tokens(self) -> int:
        """Tokens of follow-ups that the model is fed."""
        return sum(len(tree.ids) for tree in self.trees)

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        return sum(tree.size_bytes + _BYTES_PER_TEXT * len(tree.lengths) for tree in self.trees)

    def first_of(self, tree: int) -> int:
        """The place of the tree's first follow-up among all."""
        return sum(len(each.lengths) for each in self.trees[:tree])

    def rate(self, losses: Sequence[float]) -> list[float]:
        """The value of each quality, of the mean loss of each follow-up.

        The sums are exact before they are rounded, so that a value does not depend on what else was asked.
        """
        return [_mean(losses, negative) - _mean(losses, positive) for negative, positive in self.follow_ups]


class FedPlans:
    """The plans of the questions asked last. May be used from any thread."""

    def __init__(self, tokenizer: DialogueTokenizer, questions: FedQuestions, *, max_tokens: int) -> None:
        """`max_tokens` bounds the follow-ups of a caller's question together."""
        self._tokenizer = tokenizer
        self._questions = questions
        self._max_tokens = max_tokens
        self._plans: OrderedDict[FedQuestion, FedPlan] = OrderedDict()
        self._kept_bytes = 0
        self._lock = Lock()

    def peek(self, question: FedQuestion) -> FedPlan | None:
        with self._lock:
            plan = self._plans.get(question)
            if plan is not None:
                self._plans.move_to_end(question)
        return plan

    def of(self, question: FedQuestion) -> FedPlan:
        """The question's plan, made if need be.

        Raises InvalidRequestError, naming `own_qualities`, where a caller's follow-ups are too long for the window.
        """
        plan = self.peek(question)
        if plan is None:
            plan = self._build(question)  # outside the lock, for which the event loop would wait
            self._keep(plan)
        return plan

    def _keep(self, plan: FedPlan) -> None:
        with self._lock:
            if plan.question in self._plans:
                return
            self._plans[plan.question] = plan
            self._kept_bytes += plan.size_bytes
            while self._kept_bytes > KEPT_BYTES:
                _, oldest = self._plans.popitem(last=False)
                self._kept_bytes -= oldest.size_bytes

    def _build(self, question: FedQuestion) -> FedPlan:
        texts = question.texts
        places = {text: place for place, text in enumerate(texts)}
        tokens = self._tokenize(question, texts)
        return FedPlan(
            question=question,
            trees=[build_tree(each) for each in _deal(tokens)] if question.is_callers else [build_tree(tokens)],
            follow_ups=[
                ([places[text] for text in quality.negative], [places[text] for text in quality.positive])
                for _, quality in question.qualities
            ],
            room=self._questions.context_room(max(map(len, tokens))),
        )

    def _tokenize(self, question: FedQuestion, texts: Sequence[str]) -> list[Sequence[int]]:
        known = self._questions.tokens
        new = [text for text in texts if text not in known]
        found = dict(zip(new, self._tokenizer.encode_follow_ups(new), strict=True))
        longest, limit = max(map(len, found.values()), default=0), self._questions.longest_allowed
        if longest > limit:
            raise InvalidRequestError(
                f"a follow-up has {longest} tokens; at most {limit} are allowed", field="own_qualities"
            )
        total = sum(map(len, found.values()))
        if total > self._max_tokens:
            raise InvalidRequestError(
                f"the follow-ups have {total} tokens together; at most {self._max_tokens} are allowed",
                field="own_qualities",
            )
        return [found.get(text) or known[text] for text in texts]


def _deal(follow_ups: Sequence[Sequence[int]]) -> Iterator[Sequence[Sequence[int]]]:
    """Runs of follow-ups of at most `MAX_TREE_TOKENS` tokens that have to be fed, shared beginnings counted twice."""
    first, tokens = 0, 0
    for place, each in enumerate(follow_ups):
        if place > first and tokens + len(each) - 1 > MAX_TREE_TOKENS:
            yield follow_ups[first:place]
            first, tokens = place, 0
        tokens += len(each) - 1
    yield follow_ups[first:]


def _mean(losses: Sequence[float], places: Sequence[int]) -> float:
    return math.fsum(losses[place] for place in places) / len(places) if places else 0.0
