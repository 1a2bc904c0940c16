"""The published tables of Gupta et al. 2019 that its release can give. Reads the data by path; skips without it."""

import numpy as np
import pytest
from support.files import find_data
from turnscore_assessment.figures import compute_pearson, compute_spearman
from turnscore_assessment.references import evaluation

# Spearman and Pearson, as published. BLEU-3's (.0608/.1269) is given by no weights and no smoothing.
TABLE_4_SINGLE = {
    "bleu-1": (0.0241, 0.1183), "bleu-2": (0.0250, 0.1803), "bleu-4": (0.0345, 0.1380),
    "rouge-l": (0.0715, 0.1408),
}  # fmt: skip
ROUGE_HUMAN = (0.1682, 0.3502)


@pytest.fixture(scope="module")
def folder():
    ratings, _ = find_data(f"multiref/{evaluation.RATINGS_FILE}", f"multiref/{evaluation.TEST_FILE}")
    return ratings.parent


def read_human(folder, *, is_single):
    """Table 6's human, the first collected reference: 6,740 turns, against the original alone or four others."""
    places = (0,) if is_single else (0, 2, 3, 4)
    return [
        evaluation.ReferencedReplies(
            context_id=name, system="human", hypotheses=(texts[1],), references=tuple(texts[each] for each in places)
        )
        for name, texts in evaluation.read_replies(folder).items()
    ]


@pytest.mark.parametrize("name", TABLE_4_SINGLE)
def test_one_reference_gives_the_published_correlations_and_more_help(folder, name):
    rows = evaluation.read_rated(folder)
    ratings = np.array([row.rating for row in rows])
    [metric] = evaluation.find_metrics([name], evaluation.Resources())
    tables = evaluation.Tables(metric, rows)
    single, several = (
        (compute_spearman(scores, ratings), compute_pearson(scores, ratings))
        for scores in map(tables.reduce, ("single", "max"))
    )
    assert single == pytest.approx(TABLE_4_SINGLE[name], abs=0.00005)
    assert several > single


def test_the_human_column_is_the_published_one(folder):
    [metric] = evaluation.find_metrics(["rouge-l"], evaluation.Resources())
    found = [
        float(evaluation.Tables(metric, read_human(folder, is_single=single)).reduce(reducer).mean())
        for single, reducer in ((True, "max"), (False, "joint"))
    ]
    assert found == pytest.approx(ROUGE_HUMAN, abs=0.0002)
