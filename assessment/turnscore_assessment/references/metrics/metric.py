"""What every metric is: texts in pairs to numbers, with a name, a definition and a tokenisation that results carry."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from turnscore_assessment.references.comparisons import Floats

Pair = tuple[str, str]
"""Hypothesis and reference."""
Group = tuple[str, Sequence[str]]
"""A hypothesis and all its references."""


class Metric(Protocol):
    """d(y, r): how near each hypothesis is to its reference; more is nearer."""

    @property
    def name(self) -> str: ...

    @property
    def definition(self) -> str:
        """What is computed, with whose parameters, in a sentence."""

    @property
    def tokenisation(self) -> str: ...

    def compare(self, pairs: Sequence[Pair]) -> Floats:
        """One number per pair, in order."""


@runtime_checkable
class ComparesJointly(Protocol):
    """A metric that has a definition of its own for several references at once."""

    def compare_jointly(self, groups: Sequence[Group]) -> Floats:
        """One number a hypothesis, in order."""


@runtime_checkable
class ComparesCorpus(Protocol):
    """A metric that is also defined over a corpus: statistics are added up, and a number is made of the sums."""

    def compare_corpus(self, groups: Sequence[Group]) -> float:
        """One number for all hypotheses together."""
