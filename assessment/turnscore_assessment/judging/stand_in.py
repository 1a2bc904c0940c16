"""A scorer in place of the judge where it is sure: which of its values are not, chosen on turns that have marks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from turnscore_core.batches import Answer
from turnscore_core.errors import ScoringError
from turnscore_core.scoring import score_groups

from turnscore_assessment.agreement.scoring import load_bundles
from turnscore_assessment.errors import TooFewError
from turnscore_assessment.figures import Floats, Interval, compute_auc, compute_spearman, draw_dialogues, find_interval
from turnscore_assessment.judging.asking import JudgeError
from turnscore_assessment.judging.rubric import Rubric, RubricCriterion
from turnscore_assessment.judging.turns import PEOPLE, Marks, Response, Row

LOSS, MOST_ASKED = 0.02, 0.3  # How far agreement may fall, and the share that may be asked. Specified.
LEAST_TURNS = 100  # Held-out turns with marks, below which no share is chosen.
_CENTRES = np.linspace(0.1, 0.9, 9)  # Quantiles of the scorer's marks, of which the least sure one is looked for.
_ROUNDS = 200  # Resamples of dialogues for the interval of what agreement falls by.

Agreement = Callable[[Floats, Floats], float]
Marked = tuple[str, float, float, float]  # Dialogue; the marks of scorer, judge and reference.


@dataclass(frozen=True)
class Band:
    """The scorer's marks that are not sure: those within `width` of `centre`."""

    criterion: str
    centre: float
    width: float
    description: str

    def has(self, marks: Mapping[str, Marks], key: str) -> bool:
        """Whether the judge is asked; a turn that the scorer cannot score is."""
        mark = marks.get(key, {}).get(self.criterion)
        return mark is None or abs(mark - self.centre) <= self.width


class StandIn:
    """Scorers that answer for a judge, one for each criterion, and the bands in which they do not."""

    def __init__(self, references: Sequence[str], rubric: Rubric) -> None:
        """Raises JudgeError where a criterion has no scorer."""
        self._rubric = rubric
        self._loaded = load_bundles(references)
        lacking = [name for name in rubric.criteria if name not in self._loaded]
        if lacking:
            raise JudgeError(f"no --bundle answers {', '.join(lacking)}; those given answer {', '.join(self._loaded)}")
        bundles = {name: self._loaded[name].bundle for name in rubric.criteria}
        self.names = {name: bundle.manifest.reference for name, bundle in bundles.items()}
        # In the ledger, as a bundle may be trained again under its name.
        self.keys = {name: f"{self.names[name]} {bundle.digest[:12]}" for name, bundle in bundles.items()}
        self.bands: list[Band] = []

    def score(self, turns: Sequence[Response]) -> dict[str, dict[str, Marks]]:
        """By criterion, the scorer's marks on the rubric's scale, by the turns' keys; none where it cannot score one.

        Scorers of one encoder read the turns in the same pass.
        """
        passes: dict[str, list[str]] = {}
        for name in self._rubric.criteria:
            passes.setdefault(self._loaded[name].pass_key, []).append(name)
        found: dict[str, dict[str, Marks]] = {}
        for names in passes.values():
            loaded = self._loaded[names[0]]
            groups = [[loaded.scorer.trim(each.turn.to_score())] for each in turns]
            scorers = [[self._loaded[name].scorer for name in names]] * len(turns) if len(names) > 1 else None
            answers = [*zip(turns, score_groups(loaded, groups, asked=scorers), strict=True)]
            for place, name in enumerate(names):
                found[name] = {turn.key: self._marks_of(name, own[place]) for turn, own in answers}
        return found

    def _marks_of(self, criterion: str, answer: Answer) -> Marks:
        if isinstance(answer, ScoringError):
            return {}
        return {criterion: round(self._rubric.criteria[criterion].to_mark(answer.value), 4)}

    def choose(self, rows: Iterable[Row], models: Sequence[str], most_asked: float) -> None:
        """Chooses the bands on rows that have marks; JudgeError says what share would be needed where it is too large.

        Agreement is Spearman's rho, or for yes or no the area under the ROC curve: with people's marks where enough
        turns have them, else with those of judges that are not asked, else with the judge's own.
        """
        held_out = [(row.dialogue, each) for row in rows if row.split == "dev" for each in row.responses]
        asked = np.zeros(len(held_out), dtype=bool)
        found = self.score([each for _, each in held_out])
        for criterion in self._rubric.criteria.values():
            scored = found[criterion.name]
            band = _choose_band(criterion, self.names[criterion.name], scored, held_out, models)
            asked |= np.array([band.has(scored, each.key) for _, each in held_out])
            self.bands.append(band)
        share = float(asked.mean())
        if share > most_asked:
            described = "".join(f"{band.description}\n" for band in self.bands)
            raise JudgeError(
                f"{described}agreement falls by at most {LOSS} only where {share:.0%} of turns are asked, and "
                f"{most_asked:.0%} may be: train with more marks, or allow it by --most-asked {share + 0.005:.2f}"
            )

    def is_unsure(self, marks: Mapping[str, Mapping[str, Marks]], key: str) -> bool:
        """Whether the judge is asked, by the marks of every scorer."""
        return any(band.has(marks.get(self.keys[band.criterion], {}), key) for band in self.bands)


def _choose_band(
    criterion: RubricCriterion,
    scorer: str,
    scored: Mapping[str, Marks],
    held_out: Sequence[tuple[str, Response]],
    models: Sequence[str],
) -> Band:
    found: dict[str, list[Marked]] = {"people": [], "the other judges": [], "the judge itself": []}
    for dialogue, each in held_out:
        value, judged = scored[each.key].get(criterion.name), _read_marks(criterion.name, each.fields, models)
        for against, reference in zip(found, judged, strict=True):
            if value is not None and judged[2] is not None and reference is not None:
                found[against].append((dialogue, value, judged[2], reference))
    against, marked = next(((name, each) for name, each in found.items() if len(each) >= LEAST_TURNS), ("", []))
    if not against:
        count = len(found["the judge itself"])
        raise TooFewError(f"{criterion.name}: {count} held-out turns have the judge's marks; {LEAST_TURNS} are needed")
    names, *columns = zip(*marked, strict=True)
    values, judge, truth = (np.array(column, dtype=np.float64) for column in columns)
    agreement: Agreement = compute_spearman
    if criterion.is_yes_or_no:
        truth, agreement = (truth >= 0.5).astype(np.float64), compute_auc
    share, fall = _find_share(agreement, values, judge, truth, np.unique(names, return_inverse=True)[1])
    centre = _find_centre(agreement, values, judge, truth)
    width = float(np.quantile(np.abs(values - centre), share)) if share else -1.0
    full, alone = agreement(judge, truth), agreement(values, truth)
    described = (
        f"{criterion.name}: {scorer} is unsure of {share:.0%} of {len(values)} held-out turns; agreement with "
        f"{against} is {full:.3f} judging all and falls by {fall} judging these; the scorer's own is {alone:.3f}"
    )
    return Band(criterion.name, centre, width, described)


def _read_marks(name: str, response: Mapping[str, Any], models: Sequence[str]) -> tuple[float | None, ...]:
    """People's mark, the mean of judges that are not asked, and the judge's; where none is known, all are the judge."""
    if response.get("judges") == 0:  # an earlier stand-in's marks
        return None, None, None
    marks = {judge: found[name] for judge, found in response.get("marks", {}).items() if name in found}
    own = [mark for judge, mark in marks.items() if judge in models]
    others = [mark for judge, mark in marks.items() if own and judge not in models]
    judged = float(np.mean(own)) if own else response.get(name)
    return response[PEOPLE].get(name), float(np.mean(others)) if others else None, judged


def _find_share(
    agreement: Agreement, scored: Floats, judged: Floats, truth: Floats, dialogue_of: Any
) -> tuple[float, Interval]:
    """The least share with which, and with every larger one, agreement falls by at most LOSS; and what it falls by.

    Where the scorer is least sure is found on each half of the dialogues and measured on the other.
    """
    half = dialogue_of % 2 == 0
    rank = np.empty(len(scored))
    for one in (half, ~half):
        rank[one] = _rank(scored[one], _find_centre(agreement, scored[~one], judged[~one], truth[~one]))

    def fall(share: float, chosen: Any = slice(None)) -> float:
        mixed = np.where(rank < share, judged, scored)
        return agreement(judged[chosen], truth[chosen]) - agreement(mixed[chosen], truth[chosen])

    failing = [share for share in np.linspace(0, 1, 101) if not fall(share) <= LOSS]
    share = min(1.0, failing[-1] + 0.01) if failing else 0.0
    places = np.arange(len(scored))
    draws = draw_dialogues(int(dialogue_of.max()) + 1, _ROUNDS, 0).astype(int)
    return share, find_interval(fall(share), [fall(share, np.repeat(places, drawn[dialogue_of])) for drawn in draws])


def _find_centre(agreement: Agreement, scored: Floats, judged: Floats, truth: Floats) -> float:
    """The mark around which asking the judge helps most, over shares of 10 % to 30 %."""

    def gain(centre: float) -> float:
        rank = _rank(scored, centre)
        found = [agreement(np.where(rank < share, judged, scored), truth) for share in (0.1, 0.2, 0.3)]
        return float(np.nan_to_num(found).sum())

    return float(max(np.quantile(scored, _CENTRES), key=gain))


def _rank(scored: Floats, centre: float) -> Floats:
    """0 for the mark nearest to the centre, nearly 1 for the farthest."""
    return np.asarray(np.argsort(np.argsort(np.abs(scored - centre), kind="stable")) / len(scored))
