"""An analysis as tables for a terminal and as JSON. Computes nothing."""

from collections.abc import Iterator

from rich.table import Table

from turnscore_assessment.designs.analysis import CriterionAnalysis, Scoring


def make_score_table(criterion: CriterionAnalysis) -> Table:
    table = Table("system", "shown", *(scoring.method for scoring in criterion.scorings), title=criterion.criterion)
    scores = [{each.system: each.score for each in scoring.systems} for scoring in criterion.scorings]
    for each in criterion.scorings[0].systems:
        table.add_row(each.system, str(each.shown), *(str(by_system[each.system]) for by_system in scores))
    return table


def list_remarks(criterion: CriterionAnalysis) -> Iterator[str]:
    """Remarks on the method, on raters' agreement, and on systems that differ."""
    asked = criterion.answered + criterion.unanswered
    by = f"{criterion.raters} raters on {criterion.dialogues} dialogues"
    yield f"{criterion.answered} of {asked} questions answered by {by}"
    yield from (f"left out: {each}" for each in criterion.left_out)
    for scoring in criterion.scorings:
        yield f"{scoring.method}: {'; '.join(scoring.transforms)}"
        yield f"{scoring.method}: {_describe_differences(scoring)}"
    yield _describe_agreement(criterion)


def _describe_differences(scoring: Scoring) -> str:
    seen = [f"{pair.first} > {pair.second}" for pair in scoring.pairs if pair.p_holm < 0.05]
    return f"{len(seen)} of {len(scoring.pairs)} pairs differ (Holm, 5 %){': ' if seen else ''}{', '.join(seen)}"


def _describe_agreement(criterion: CriterionAnalysis) -> str:
    found = criterion.agreement
    if found.alpha_interval is None or found.intraclass is None:
        return "agreement: no two raters judged the same item"
    single = found.intraclass
    parts = [f"Krippendorff's alpha {found.alpha_interval:.2f}"]
    parts.append(f"ICC of one rater: consistency {single.consistency:.2f}, agreement {single.agreement:.2f}")
    parts.append(
        f"of the mean of {single.raters:.3g}: consistency {single.consistency_of_mean:.2f}, "
        f"agreement {single.agreement_of_mean:.2f}"
    )
    if found.split_half is not None:
        parts.append(f"split halves, stepped up {found.split_half:.2f}")
    return "agreement on items: " + "; ".join(parts)
