"""The report on a training of the sentiment/stop model: its labels in numbers, and its agreement with people."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from turnscore_assessment.data.dialogues import LabelledTurn
from turnscore_assessment.figures import compute_pearson, compute_spearman
from turnscore_assessment.rendering import table_head, table_row

from turnscore_exporters.sentiment.model import (
    LabelRules,
    SentimentStopModel,
    WindowBuilder,
    asks,
    begins_with_negation,
    complains,
    label_sentiment,
    score_rows,
    score_vader,
    strip_negation,
)
from turnscore_exporters.training.encoders import Encoder

LABELLINGS: Mapping[str, LabelRules] = {
    "VADER": LabelRules(handles_short_answers=False, complaint_weight=0.0),
    "VADER, short answers handled": LabelRules(complaint_weight=0.0),
    "VADER, complaints": LabelRules(handles_short_answers=False),
    "VADER, short answers handled, complaints": LabelRules(),
}


def count_labels(turns: Sequence[LabelledTurn], rules: LabelRules) -> dict[str, Any]:
    """The numbers of turns, sentiments and ends of one set."""
    labels = [label_sentiment(turn.next_user, turn.response, rules) for turn in turns if turn.next_user is not None]
    ends = [turn.goes_on for turn in turns]
    return {
        "turns": len(turns),
        "sentiments": len(labels),
        "positive": sum(label > 0 for label in labels),
        "neutral": sum(label == 0 for label in labels),
        "negative": sum(label < 0 for label in labels),
        "mean_sentiment": _mean(labels),
        "goes_on": ends.count(True),
        "stops": ends.count(False),
        "unknown_end": ends.count(None),
        "complaints": sum(complains(turn.next_user) for turn in turns if turn.next_user is not None),
    }


def count_short_answers(turns: Sequence[LabelledTurn]) -> dict[str, Any]:
    """The effect of handling short answers in one set: negations after a question, and VADER's score of them."""
    answers = [
        turn.next_user
        for turn in turns
        if turn.next_user is not None and asks(turn.response) and begins_with_negation(turn.next_user)
    ]
    before = [score_vader(answer) for answer in answers]
    handled = LABELLINGS["VADER, short answers handled"]
    after = [label_sentiment(answer, "?", handled) for answer in answers]
    return {
        "after_a_question": sum(asks(turn.response) for turn in turns if turn.next_user is not None),
        "negated_answers": len(answers),
        "nothing_else": sum(not strip_negation(answer).strip() for answer in answers),
        "labels_changed": sum(abs(old - new) > 1e-9 for old, new in zip(before, after, strict=True)),
        "called_negative_before": sum(score < 0 for score in before),
        "called_negative_after": sum(score < 0 for score in after),
        "mean_before": _mean(before),
        "mean_after": _mean(after),
    }


def compare_labellings(judged: Sequence[LabelledTurn]) -> dict[str, dict[str, float]]:
    """How far each labelling of the real next utterance agrees with people's view of the response: no model."""
    answered = [each for each in judged if each.next_user is not None]
    qualities = [each.rating for each in answered]
    found = {}
    for name, rules in LABELLINGS.items():
        labels = [label_sentiment(each.next_user or "", each.response, rules) for each in answered]
        found[name] = _correlate(labels, qualities) | {"turns": len(answered)}
    return found


def measure_development(
    model: SentimentStopModel, encoder: Encoder, judged: Sequence[LabelledTurn]
) -> dict[str, dict[str, float]]:
    """Correlations of the value and its parts with people's judgements; those of the value also by system."""
    rows = WindowBuilder(encoder, model.settings)
    scores = score_rows(model, [rows.build(each.context, each.response) for each in judged]).numpy().astype(np.float64)
    qualities = [each.rating for each in judged]
    values = scores.sum(1)
    found = {
        "value": _correlate(values, qualities),
        "sentiment": _correlate(scores[:, 0], qualities),
        "goes_on": _correlate(scores[:, 1], qualities),
    }
    for system in sorted({each.system for each in judged}):
        chosen = [place for place, each in enumerate(judged) if each.system == system]
        found[f"value, {system}"] = _correlate(values[chosen], [qualities[place] for place in chosen])
    return found


def _correlate(scores: Any, qualities: Sequence[float]) -> dict[str, float]:
    figures = {"spearman": compute_spearman(scores, qualities), "pearson": compute_pearson(scores, qualities)}
    return {name: round(figure, 4) for name, figure in figures.items() if not math.isnan(figure)}


def _mean(numbers: Sequence[float]) -> float | None:
    return round(sum(numbers) / len(numbers), 4) if numbers else None


def render_table(rows: Mapping[str, Mapping[str, Any]], first: str) -> str:
    """A Markdown table of figures by name: a row each, the first column being what `first` says."""
    columns = list(dict.fromkeys(column for figures in rows.values() for column in figures))
    lines = table_head([first, *(column.replace("_", " ") for column in columns)])
    lines += [table_row([name, *(figures.get(column, "") for column in columns)]) for name, figures in rows.items()]
    return "\n".join(lines)
