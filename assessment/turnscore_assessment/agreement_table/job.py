"""One run of the agreement table: reads the sets, scores and measures them. Writes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from turnscore_assessment.agreement.bundles import load_bundles
from turnscore_assessment.agreement_table.columns import Say, ScoredSet, score_sets
from turnscore_assessment.agreement_table.judged_sets import read_judged_sets
from turnscore_assessment.agreement_table.measures import Draws, measure_set, order_systems
from turnscore_assessment.agreement_table.page import MeasuredSet, TablePage
from turnscore_assessment.agreement_table.relevance import SCORER, measure_relevance
from turnscore_assessment.errors import AgreementError


@dataclass(frozen=True, kw_only=True)
class TableJob:
    """The command's options."""

    data: Path
    bundles: Sequence[str]
    most_turns: int
    slow_turns: int
    most_contexts: int
    draws: Draws
    command: str
    date: str


def run_table_job(job: TableJob, say: Say) -> TablePage:
    """The page's figures. Raises BadFileError for a file, AgreementError where nothing can be measured."""
    rounds, seed = job.draws
    sets = read_judged_sets(job.data, job.most_turns, seed)
    if not sets:
        raise AgreementError(f"{job.data} has none of the development sets")
    scorers = load_bundles(job.bundles)
    scored = score_sets(sets, scorers, job.slow_turns, seed, say)
    relevance = measure_relevance(scorers[SCORER], job.data, job.most_contexts, job.draws) if SCORER in scorers else []
    say("measuring")
    return TablePage(
        command=job.command,
        date=job.date,
        rounds=rounds,
        seed=seed,
        slow_turns=job.slow_turns,
        scorers=list(scorers.values()),
        sets=[_measure(each, job.draws) for each in scored],
        relevance=relevance,
    )


def _measure(scored: ScoredSet, draws: Draws) -> MeasuredSet:
    people_order, systems = order_systems(scored, draws)
    return MeasuredSet(scored=scored, groups=measure_set(scored, draws), people_order=people_order, systems=systems)
