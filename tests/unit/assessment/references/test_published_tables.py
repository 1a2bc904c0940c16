"""The published tables of Gupta et al. 2019 that its release can give. Reads the data by path; skips without it."""

import os
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from support.files import find_data
from turnscore_assessment.figures import compute_pearson, compute_spearman
from turnscore_assessment.references.evaluation import (
    RATINGS_FILE,
    TEST_FILE,
    ReferencedReplies,
    Resources,
    Tables,
    find_metrics,
    groups_of,
    read_rated,
    read_replies,
)

# Spearman and Pearson, as published. BLEU-3's (.0608/.1269) is given by no weights and no smoothing.
TABLE_4_SINGLE = {
    "bleu-1": (0.0241, 0.1183),
    "bleu-2": (0.0250, 0.1803),
    "bleu-4": (0.0345, 0.1380),
    "rouge-l": (0.0715, 0.1408),
}
METEOR_SINGLE = (0.1064, 0.1871)
TABLE_6_HUMAN = {"bleu-4": (0.0245, 0.0791, "max"), "rouge-l": (0.1682, 0.3502, "joint")}
# Not published: what other definitions give on the same rows.
LIBRARY_SINGLE = {
    "bleu-4@sacrebleu": (0.0302, 0.1502),
    "rouge-l@rouge-score": (0.0994, 0.1825),
    "gleu": (0.0803, 0.1763),
    "chrf@sacrebleu": (0.0412, 0.1684),
}


@pytest.fixture(scope="module")
def folder() -> Path:
    ratings, _ = find_data(f"multiref/{RATINGS_FILE}", f"multiref/{TEST_FILE}")
    return ratings.parent


def read_human(folder: Path, *, is_single: bool) -> list[ReferencedReplies]:
    """Table 6's human, the first collected reference: 6,740 turns, against the original alone or four others."""
    places = (0,) if is_single else (0, 2, 3, 4)
    return [
        ReferencedReplies(
            context_id=name, system="human", hypotheses=(texts[1],), references=tuple(texts[each] for each in places)
        )
        for name, texts in read_replies(folder).items()
    ]


@cache
def correlate(folder: Path, name: str, reducer: str, resources: Resources | None = None) -> tuple[float, float]:
    rows = read_rated(folder)
    ratings = np.array([row.rating for row in rows])
    [metric] = find_metrics([name], resources or Resources())
    scores = Tables(metric, rows).reduce(reducer)
    return round(compute_spearman(scores, ratings), 4), round(compute_pearson(scores, ratings), 4)


@pytest.mark.parametrize("name", TABLE_4_SINGLE)
def test_one_reference_gives_the_published_correlations(folder: Path, name: str):
    assert correlate(folder, name, "single") == TABLE_4_SINGLE[name]


@pytest.mark.parametrize("name", LIBRARY_SINGLE)
def test_another_definition_gives_other_correlations(folder: Path, name: str):
    assert correlate(folder, name, "single") == LIBRARY_SINGLE[name]


def test_more_references_help_every_metric(folder: Path):
    for name in (*TABLE_4_SINGLE, *LIBRARY_SINGLE):
        assert correlate(folder, name, "max") > correlate(folder, name, "single")


@pytest.mark.parametrize("name", TABLE_6_HUMAN)
def test_the_human_column_is_the_published_one(folder: Path, name: str):
    single, several, reducer = TABLE_6_HUMAN[name]
    assert measure(name, read_human(folder, is_single=True), "max") == pytest.approx(single, abs=0.0002)
    assert measure(name, read_human(folder, is_single=False), reducer) == pytest.approx(several, abs=0.0002)


def measure(name: str, rows: list, reducer: str) -> float:
    [metric] = find_metrics([name], Resources())
    return float(Tables(metric, rows).reduce(reducer).mean())


def find_jar() -> Resources:
    """METEOR 1.5, where `METEOR_JAR` says that it lies and there is a Java."""
    jar = os.environ.get("METEOR_JAR")
    if not jar or shutil.which("java") is None:
        pytest.skip("METEOR_JAR names no jar of METEOR 1.5, or there is no java")
    return Resources(meteor_jar=Path(jar))


def test_meteor_s_jar_gives_the_published_correlations(folder: Path):
    assert correlate(folder, "meteor", "single", find_jar()) == METEOR_SINGLE


def test_meteor_s_jar_gives_the_published_human_column(folder: Path):
    [metric] = find_metrics(["meteor"], find_jar())
    assert metric.compare_corpus is not None
    found = [metric.compare_corpus(groups_of(read_human(folder, is_single=single))) for single in (True, False)]
    assert found == pytest.approx([0.0592, 0.1456], abs=0.0002)
