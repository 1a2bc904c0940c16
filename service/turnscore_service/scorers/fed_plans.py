"""FED's plans: everything about a question that does not depend on the turn, made once and kept for a while."""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from turnscore_service.inference.dialogue_tokens import DialogueTokenizer
from turnscore_service.inference.fed_tree import FollowUpTree, build_tree
from turnscore_service.scorers.fed_options import PERCENTILE_SUFFIX, FedQuestion, Quality
from turnscore_service.scorers.fed_reference import Curve, FedReference, place_on
from turnscore_service.scorers.fields import fingerprint
from turnscore_service.scorers.scorer import RawScore

_KEPT_PLANS = 64
"""Questions whose plan is kept; a service sees few different ones. Chosen."""


@dataclass(frozen=True, slots=True)
class FedPlan:
    """A question with its tree of follow-ups and the curves to place its values on."""

    question: FedQuestion
    tree: FollowUpTree
    follow_ups: Sequence[tuple[Sequence[int], Sequence[int]]]
    """For each quality the places in the tree of its negative and of its positive follow-ups."""
    curves: Sequence[Curve | None]
    mean_curve: Curve | None
    parts: tuple[bytes, ...]
    """A fingerprint for each quality, of all but the turn that its value depends on; its name is not."""

    @property
    def with_context(self) -> bool:
        """Whether the losses of the context's tokens are needed too."""
        return self.question.loss == "whole_sequence"

    def rate(self, losses: NDArray[np.float64]) -> list[float]:
        """The value of each quality, of the mean loss of each follow-up of the tree.

        The sums are exact before they are rounded, so that a value does not depend on what else was asked.
        """
        known = losses.tolist()
        return [_mean(known, negative) - _mean(known, positive) for negative, positive in self.follow_ups]

    def score(self, values: Sequence[float]) -> RawScore:
        """The turn's score: the mean of its qualities' values, and each with its percentile in `details`."""
        details: dict[str, float] = {}
        for (name, _), value, curve in zip(self.question.qualities, values, self.curves, strict=True):
            details[name] = value
            if curve is not None:
                details[name + PERCENTILE_SUFFIX] = place_on(curve, value)
        mean = float(np.mean(values))
        percentile = None if self.mean_curve is None else place_on(self.mean_curve, mean)
        return RawScore(mean, details, percentile=percentile, is_comparable=percentile is not None)


class FedPlans:
    """The plans of the questions asked last. May be used from any thread."""

    def __init__(
        self, tokenizer: DialogueTokenizer, reference: FedReference, room_for: Callable[[FollowUpTree], int]
    ) -> None:
        """`room_for` tells how many tokens of a turn fit the window beside a tree."""
        self._tokenizer = tokenizer
        self._reference = reference
        self._room_for = room_for
        self._plans: OrderedDict[FedQuestion, FedPlan] = OrderedDict()
        self._lock = Lock()

    def of(self, question: FedQuestion) -> FedPlan:
        """The question's plan, made if need be."""
        with self._lock:
            plan = self._plans.get(question)
            if plan is None:
                plan = self._plans[question] = self._build(question)
            self._plans.move_to_end(question)
            if len(self._plans) > _KEPT_PLANS:
                self._plans.popitem(last=False)
        return plan

    def _build(self, question: FedQuestion) -> FedPlan:
        texts = [text for _, quality in question.qualities for text in (*quality.positive, *quality.negative)]
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        follow_ups = [
            ([places[text] for text in quality.negative], [places[text] for text in quality.positive])
            for _, quality in question.qualities
        ]
        tree = build_tree(self._tokenizer.encode_follow_ups(list(places)))
        curves, mean_curve = self._reference.curves(question)
        room = self._room_for(tree)
        parts = tuple(_part(question, quality, room) for _, quality in question.qualities)
        return FedPlan(question, tree, follow_ups, curves, mean_curve, parts)


def _part(question: FedQuestion, quality: Quality, room: int) -> bytes:
    """`room` too: a longer follow-up of another quality leaves less of the context to read."""
    return fingerprint((question.loss, quality.positive, quality.negative, room))


def _mean(losses: Sequence[float], places: Sequence[int]) -> float:
    return math.fsum(losses[place] for place in places) / len(places) if places else 0.0
