"""What every metric is: pairs of texts to numbers, with a name, a definition and a tokenisation for the results."""

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
        """The definition in a sentence, with its parameters."""

    @property
    def tokenisation(self) -> str: ...

    def compare(self, pairs: Sequence[Pair]) -> Floats:
        """One number per pair, in order."""


@runtime_checkable
class ComparesJointly(Protocol):
    """A metric with a definition of its own for several references at once."""

    def compare_jointly(self, groups: Sequence[Group]) -> Floats:
        """One number per hypothesis, in order."""


@runtime_checkable
class ComparesCorpus(Protocol):
    """A metric that is also defined over a corpus: statistics are summed first."""

    def compare_corpus(self, groups: Sequence[Group]) -> float:
        """One number for all hypotheses together."""
