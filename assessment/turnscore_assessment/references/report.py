"""Reports: an evaluation as tables and as JSON. Results name metric, definition, reducer and tokenisation."""

import math
from collections.abc import Sequence
from dataclasses import asdict

from turnscore_assessment.figures import Interval
from turnscore_assessment.files import to_json_text
from turnscore_assessment.references.diversity import Diversity
from turnscore_assessment.references.evaluation import Evaluation

_Cells = Sequence[str]
_LEAST_SHOWN = 0.0001


def to_json(evaluation: Evaluation) -> str:
    """The evaluation as JSON; NaN becomes null."""
    return to_json_text(asdict(evaluation))


def to_table(evaluation: Evaluation) -> str:
    """Tables of results, diversity and correlations, and at the end each metric's definition."""
    parts = [
        "\n".join(
            [
                f"{evaluation.rows} rows, {evaluation.contexts} contexts, {evaluation.rated_rows} rated",
                *_warn(evaluation),
            ]
        ),
        _lay_out(
            ("system", "metric", "reducer", "level", "tokens", "rows", "value"),
            [
                (r.system, r.metric, r.reducer, r.level, r.tokenisation, str(r.rows), f"{r.value:.4f}")
                for r in evaluation.results
            ],
        ),
        _lay_out(
            ("system", "diversity", "tokens", "responses", "value"),
            [line for each in evaluation.diversity for line in _diversity_lines(each)],
        ),
    ]
    if evaluation.correlations:
        parts.append(_correlation_table(evaluation))
    definitions = {r.metric: r.definition for r in evaluation.results}
    parts.append("\n".join(f"{name}: {definition}" for name, definition in definitions.items()))
    return "\n\n".join(parts) + "\n"


def _warn(evaluation: Evaluation) -> list[str]:
    return [
        f"warning: {count} empty replies of {system} are compared as a full stop, which many references share"
        for system, count in evaluation.empty.items()
    ]


def _correlation_table(evaluation: Evaluation) -> str:
    head = ("metric", "reducer", "references", "n", "contexts", "Pearson", "Spearman", "Williams p")
    lines = [
        (
            each.metric,
            each.reducer,
            str(each.references),
            str(each.agreement.rows),
            str(each.agreement.contexts),
            _show(each.agreement.pearson),
            _show(each.agreement.spearman),
            "" if each.against_first is None else _number(each.against_first.p),
        )
        for each in evaluation.correlations
    ]
    note = (
        "Correlations with the ratings; intervals of 95 % from drawing contexts anew. Williams' test compares "
        f"Pearson's r with that of {evaluation.correlations[0].metric}."
    )
    return f"{note}\n{_lay_out(head, lines)}"


def _diversity_lines(found: Diversity) -> list[_Cells]:
    figures = {f"distinct-{order}": value for order, value in found.distinct.items()}
    for order, value in found.expected_adjusted.items():
        figures[f"ead-{order} (V = {found.vocabulary[order]})"] = value
    for order, value in (found.distinct_within_rows or {}).items():
        figures[f"distinct-{order} within rows"] = value
    for order, value in (found.self_bleu or {}).items():
        figures[f"self-bleu-{order}"] = value
    return [
        (found.system, name, found.tokenisation, str(found.responses), f"{value:.4f}")
        for name, value in figures.items()
    ]


def _lay_out(head: _Cells, lines: Sequence[_Cells]) -> str:
    widths = [max(len(line[place]) for line in (head, *lines)) for place in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (head, *lines)
    )


def _show(interval: Interval) -> str:
    if not math.isfinite(interval.value):
        return "-"
    if not math.isfinite(interval.low):
        return f"{interval.value:.4f}"
    return f"{interval.value:.4f} [{interval.low:.3f}, {interval.high:.3f}]"


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "-"
    return f"{value:.4f}" if value >= _LEAST_SHOWN else f"< {_LEAST_SHOWN}"
