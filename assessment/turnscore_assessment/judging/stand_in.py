"""A scorer in place of the judge where it is sure: which of its values are not, chosen on turns that have marks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from turnscore_core.errors import ScoringError
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scoring import score_groups

from turnscore_assessment.agreement.scoring import load_bundles, make_turn
from turnscore_assessment.errors import TooFewError
from turnscore_assessment.figures import (
    Flags,
    Floats,
    Integers,
    Interval,
    compute_auc,
    compute_spearman,
    draw_dialogues,
    find_interval,
)
from turnscore_assessment.judging.asking import JudgeError
from turnscore_assessment.judging.rubric import Criterion, Rubric
from turnscore_assessment.judging.turns import Marks, Response, Row

LOSS, MOST_ASKED = 0.02, 0.3  # How far agreement may fall, and the share that may be asked. Specified.
LEAST_TURNS = 100  # Held-out turns with marks, below which no share is chosen. Chosen.
_CENTRES = np.linspace(0.1, 0.9, 9)  # Quantiles of the scorer's marks, of which the least sure one is looked for.
_ROUNDS = 200  # Resamples of dialogues of the loss's interval.

Agreement = Callable[[Floats, Floats], float]


@dataclass(frozen=True, kw_only=True)
class Band:
    """The scorer's marks that are not sure: those nearest to `centre`. `judged` is the agreement of judging all."""

    criterion: str
    scorer: str
    against: str
    turns: int
    centre: float
    width: float
    share: float
    judged: float
    alone: float
    loss: Interval

    def has(self, mark: float | None) -> bool:
        """Whether the judge is asked; a turn that the scorer cannot score is."""
        return mark is None or abs(mark - self.centre) <= self.width

    def __str__(self) -> str:
        return (
            f"{self.criterion}: {self.scorer} is unsure of {self.share:.0%} of {self.turns} held-out turns; agreement "
            f"with {self.against} is {self.judged:.3f} judging all, {self.judged - self.loss.value:.3f} judging these "
            f"(falls by {self.loss}), {self.alone:.3f} judging none"
        )


class StandIn:
    """Scorers that answer for a judge, one for each criterion, and the bands in which they do not."""

    def __init__(self, references: Sequence[str], rubric: Rubric) -> None:
        """Raises JudgeError where a criterion has no scorer."""
        self._rubric = rubric
        self.loaded = load_bundles(references)
        lacking = [name for name in rubric.criteria if name not in self.loaded]
        if lacking:
            raise JudgeError(f"no --scorer answers {', '.join(lacking)}; those given answer {', '.join(self.loaded)}")
        self.names = {name: self.loaded[name].bundle.manifest.reference for name in rubric.criteria}
        self.bands: list[Band] = []

    def score(self, criterion: str, turns: Sequence[Response]) -> dict[str, Marks]:
        """The scorer's marks on the rubric's scale, by the turns' keys; none for a turn that cannot be scored."""
        scored = score_responses(self.loaded[criterion], turns)
        to_mark = self._rubric.criteria[criterion].to_mark
        return {key: {} if value is None else {criterion: round(to_mark(value), 4)} for key, value in scored.items()}

    def choose(self, rows: Iterable[Row], models: Sequence[str], most_asked: float) -> None:
        """Chooses the bands on rows that have marks; JudgeError says what share would be needed where it is too large.

        Agreement is Spearman's rho, or for yes or no the area under the ROC curve: with people's marks where enough
        turns have them, else with those of judges that are not asked, else with the judge's own.
        """
        held_out = [(row, each) for row in rows if row.split == "dev" for each in row.responses]
        asked: Flags = np.zeros(len(held_out), dtype=bool)
        for criterion in self._rubric.criteria.values():
            scored = self.score(criterion.name, [each for _, each in held_out])
            values = [scored[each.key].get(criterion.name) for _, each in held_out]
            band = _choose_band(criterion, self.names[criterion.name], values, held_out, models)
            self.bands.append(band)
            asked |= np.array([band.has(value) for value in values])
        share = float(asked.mean())
        if share > most_asked:
            bands = "\n".join(map(str, self.bands))
            raise JudgeError(
                f"{bands}\nagreement falls by at most {LOSS} only where {share:.0%} of turns are asked, and "
                f"{most_asked:.0%} may be: train with more marks, or allow it by --most-asked {share + 0.005:.2f}"
            )

    def is_unsure(self, marks: Mapping[str, Mapping[str, Marks]], key: str) -> bool:
        """Whether the judge is asked, by the marks of every scorer."""
        return any(band.has(marks[band.scorer].get(key, {}).get(band.criterion)) for band in self.bands)


def score_responses(loaded: LoadedScorer, turns: Sequence[Response]) -> dict[str, float | None]:
    """The scorer's value of each response by its key; None for one that cannot be scored."""
    groups = [[loaded.trim(make_turn(turn.context, turn.text))] for turn in turns]
    answers = [answer for [answer] in score_groups(loaded, groups)]
    return {
        turn.key: None if isinstance(answer, ScoringError) else answer.value
        for turn, answer in zip(turns, answers, strict=True)
    }


def _choose_band(
    criterion: Criterion,
    scorer: str,
    values: Sequence[float | None],
    held_out: Sequence[tuple[Row, Response]],
    models: Sequence[str],
) -> Band:
    marked = []
    for value, (row, each) in zip(values, held_out, strict=True):
        judged, others = _read_marks(criterion.name, each.other, models)
        if value is not None and judged is not None:
            marked.append((row.dialogue, value, judged, each.people.get(criterion.name), others))
    references = {
        "people": [person for *_, person, _ in marked],
        "the other judges": [others for *_, others in marked],
        "the judge itself": [judged for _, _, judged, _, _ in marked],
    }
    against, reference = next(
        ((name, found) for name, found in references.items() if sum(each is not None for each in found) >= LEAST_TURNS),
        ("", []),
    )
    if not against:
        raise TooFewError(
            f"{criterion.name}: {len(marked)} held-out turns have marks of the judge, and {LEAST_TURNS} are needed"
        )
    kept = [(*each[:3], other) for each, other in zip(marked, reference, strict=True) if other is not None]
    names, *columns = zip(*kept, strict=True)
    scored, judged_by, truth = (np.array(column, dtype=np.float64) for column in columns)
    agreement: Agreement = compute_spearman
    if criterion.is_yes_or_no:
        truth = (truth >= 0.5).astype(np.float64)
        agreement = compute_auc
    dialogue_of = np.unique(names, return_inverse=True)[1]
    return _fit_band(criterion.name, scorer, against, agreement, scored, judged_by, truth, dialogue_of)


def _read_marks(name: str, response: Mapping[str, Any], models: Sequence[str]) -> tuple[float | None, float | None]:
    """The mean mark of the judges that are asked, and that of others; where none is known, all are the judge."""
    if response.get("judges") == 0:  # an earlier stand-in's marks
        return None, None
    by_judge = {judge: marks[name] for judge, marks in response.get("marks", {}).items() if name in marks}
    own = [mark for judge, mark in by_judge.items() if judge in models]
    others = [mark for judge, mark in by_judge.items() if judge not in models]
    if not own:
        return response.get(name), None
    return float(np.mean(own)), float(np.mean(others)) if others else None


def _fit_band(
    name: str, scorer: str, against: str, agreement: Agreement,
    scored: Floats, judged: Floats, truth: Floats, dialogue_of: Integers,
) -> Band:  # fmt: skip
    """The smallest band with which, and with every wider one, agreement falls by at most LOSS.

    Where the scorer is least sure is found on each half of the dialogues and measured on the other.
    """
    half = dialogue_of % 2 == 0
    rank = np.empty(len(scored))
    for one in (half, ~half):
        centre = _find_centre(agreement, scored[~one], judged[~one], truth[~one])
        rank[one] = _rank_by_distance(scored[one], centre)

    def mix(share: float) -> Floats:
        return np.where(rank < share, judged, scored)

    full = agreement(judged, truth)
    shares = np.linspace(0, 1, 101)
    failing = [share for share in shares if not agreement(mix(share), truth) >= full - LOSS]
    share = min(1.0, failing[-1] + 0.01) if failing else 0.0
    centre = _find_centre(agreement, scored, judged, truth)
    distances = np.abs(scored - centre)
    losses = []
    for drawn in draw_dialogues(int(dialogue_of.max()) + 1, _ROUNDS, 0):
        chosen = np.repeat(np.arange(len(scored)), drawn[dialogue_of].astype(int))
        losses.append(agreement(judged[chosen], truth[chosen]) - agreement(mix(share)[chosen], truth[chosen]))
    return Band(
        criterion=name,
        scorer=scorer,
        against=against,
        turns=len(scored),
        centre=centre,
        width=float(np.quantile(distances, share)) if share else -1.0,
        share=share,
        judged=full,
        alone=agreement(scored, truth),
        loss=find_interval(full - agreement(mix(share), truth), losses),
    )


def _find_centre(agreement: Agreement, scored: Floats, judged: Floats, truth: Floats) -> float:
    """The mark around which asking the judge helps most, over shares of 10 % to 30 %."""

    def gain(centre: float) -> float:
        rank = _rank_by_distance(scored, centre)
        found = [agreement(np.where(rank < share, judged, scored), truth) for share in (0.1, 0.2, 0.3)]
        return float(np.nan_to_num(found).sum())

    return float(max(np.quantile(scored, _CENTRES), key=gain))


def _rank_by_distance(scored: Floats, centre: float) -> Floats:
    """0 for the mark nearest to the centre, nearly 1 for the farthest."""
    return np.asarray(np.argsort(np.argsort(np.abs(scored - centre), kind="stable")) / len(scored))
