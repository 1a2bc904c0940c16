"""Parity: a graph against its checkpoint, through the code that serves. Decides; changes nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from turnscore_assessment.figures import compute_spearman
from turnscore_core.inference.onnx_backend import OnnxBackend
from turnscore_core.scorers.scorer import Scorer, TurnToScore
from turnscore_models import Bundle, GraphVariant
from turnscore_wire import Turn

from turnscore_exporters.errors import ParityError
from turnscore_exporters.graphs.fp16 import examined_graph

PACKS_AT_ONCE = 32
# Chosen: fp16 costs nothing that a person or a ranking could see. int8's order is measured and reported, not judged.
MIN_SPEARMAN: dict[GraphVariant, float] = {"cuda-fp16": 0.999}


@dataclass(frozen=True, kw_only=True)
class Drift:
    """Absolute differences of a graph's scores from the checkpoint's, and the rank correlation of the two."""

    turns: int
    max_abs: float
    mean_abs: float
    spearman: float

    def to_dict(self) -> dict[str, float]:
        """The manifest's `parity_measured`."""
        figures = {"turns": self.turns, "max_abs": self.max_abs, "mean_abs": self.mean_abs, "spearman": self.spearman}
        return {name: round(float(value), 7) for name, value in figures.items()}


def serve_turns(scorer: Scorer, turns: Sequence[TurnToScore]) -> list[float]:
    """Values of the turns in order, in batches of like length as the service forms them."""
    packs = sorted(scorer.encode(turns), key=lambda pack: pack.width)
    values = [0.0] * len(turns)
    for start in range(0, len(packs), PACKS_AT_ONCE):
        batch = packs[start : start + PACKS_AT_ONCE]
        answers = [answer for pack in batch for answer in pack.answers]
        for answer, score in zip(answers, scorer.score(batch), strict=True):
            values[answer] = score.value
    return values


def check_parity(
    graph: GraphVariant,
    turns: Sequence[TurnToScore],
    served: Sequence[float],
    expected: Sequence[float],
    tolerance: float,
) -> Drift:
    """The drift of the served values.

    Raises ParityError naming graph, text and difference where a difference exceeds the tolerance, or the rank
    correlation where a graph that must keep the order of turns does not.
    """
    differences = np.abs(np.asarray(served) - np.asarray(expected))
    worst = int(np.argmax(np.where(np.isnan(differences), np.inf, differences)))
    if not differences[worst] <= tolerance:
        said = turns[worst].context[-1].text if turns[worst].context else ""
        raise ParityError(
            f"graph {graph}: scores {turns[worst].response!r} after {said!r} as {served[worst]:.6f}, "
            f"the checkpoint as {expected[worst]:.6f}; "
            f"the difference {differences[worst]:.2e} exceeds the tolerance {tolerance:.2g}"
            f"{'' if graph == 'fp32' else '; --graph fp32 exports without it'}"
        )
    drift = Drift(
        turns=len(turns),
        max_abs=float(differences[worst]),
        mean_abs=float(differences.mean()),
        spearman=compute_spearman(served, expected),
    )
    check_order(graph, drift)
    return drift


def examine_graphs(
    bundle: Bundle,
    make_scorer: Callable[[Bundle, OnnxBackend], Scorer],
    pairs: Sequence[tuple[str, str]],
    expected: Sequence[float],
) -> dict[GraphVariant, dict[str, float]]:
    """Each graph's drift on the pairs, as the service runs it; raises ParityError as `check_parity` does."""
    turns = turns_of(pairs)
    found: dict[GraphVariant, dict[str, float]] = {}
    for variant, spec in bundle.manifest.graphs.items():
        with examined_graph(bundle.path_of(spec.file), variant) as graph:
            scorer = make_scorer(bundle, OnnxBackend(graph, threads=1))
        served = serve_turns(scorer, turns)
        found[variant] = check_parity(variant, turns, served, expected, spec.parity_tolerance).to_dict()
    return found


def check_order(graph: GraphVariant, drift: Drift) -> None:
    """Raises ParityError unless the graph keeps the order of the turns as well as its precision must."""
    least = MIN_SPEARMAN.get(graph, -1.0)
    if not drift.spearman >= least:
        raise ParityError(
            f"graph {graph}: the order of {drift.turns} turns correlates with the checkpoint's by "
            f"{drift.spearman:.5f}; at least {least} is needed"
        )


def turns_of(pairs: Sequence[tuple[str, str]]) -> list[TurnToScore]:
    """(query, reply) texts as turns to score; an empty query is no context."""
    return [TurnToScore([Turn(speaker="user", text=query)] if query.strip() else [], reply) for query, reply in pairs]
