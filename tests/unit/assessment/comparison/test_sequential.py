"""The sequential comparison of ratings: one observation a worker, in the order of arrival, and an honest verdict."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.files import write_lines
from turnscore_assessment.comparison.sequential import PairedDifferences, collect_observations, compare_sequentially
from turnscore_assessment.errors import AssessmentError, TooFewError
from turnscore_assessment.ratings.rating_file import read_ratings
from turnscore_client._command.registry import app
from typer.testing import CliRunner

STUDY = {"study": "s", "criteria": [{"name": "fun"}, {"name": "dull", "direction": "negative"}]}
START = datetime(2026, 11, 22, tzinfo=UTC)


def row(
    worker: str, system: str, fun: float, dull: float = 50, *, hit: str = "h", minute: int | None = None
) -> dict[str, Any]:
    made = {"worker": worker, "hit": hit, "system": system, "ratings": {"fun": fun, "dull": dull}}
    return made if minute is None else {**made, "submitted_at": (START + timedelta(minutes=minute)).isoformat()}


def collect(tmp_path: Path, *rows: dict[str, Any], criterion: str = "fun") -> PairedDifferences:
    return collect_observations(read_ratings(write_lines(tmp_path / "r.jsonl", STUDY, *rows)), "A", "B", criterion)


def test_an_observation_is_the_difference_within_a_workers_first_hit(tmp_path: Path) -> None:
    found = collect(
        tmp_path,
        row("v", "A", 80),
        row("w", "A", 50),
        row("w", "B", 40),
        row("v", "B", 20),
        row("w", "A", 100, hit="later"),
        row("w", "B", 0, hit="later"),
        row("v", "C", 1),
        row("x", "A", 3),
    )
    assert found.differences.tolist() == [10, 60]  # w's HIT was complete first
    assert found.reach == 100
    assert "2 HITs are no observation: of a worker seen before, or with one of the two systems only" in found.notes
    assert "not every dialogue has `submitted_at`: taken in the order of the file" in found.notes


def test_a_worker_who_fails_the_quality_control_in_that_hit_is_no_observation(tmp_path: Path) -> None:
    """The careless one passes later, with other HITs: that changes no look that was had."""
    rows = []
    for worker, broken in (("good", 9.0), ("careless", 99.0)):
        rated = [("A", 80), ("B", 60), ("C", 70), ("D", 65), ("E", 75)]
        rows += [row(worker, system, fun, 100 - fun) for system, fun in rated]
        rows += [{**row(worker, f"broken{n}", broken - n, 50), "degraded": True} for n in range(4)]
        rows[-9:] = [{**each, "position": place} for place, each in enumerate(rows[-9:])]
    later = [{**row("careless", f"broken{n}", n, hit="later"), "degraded": True} for n in range(9)]
    found = collect(tmp_path, *rows, *later)
    assert found.differences.tolist() == [20]
    assert "1 of 2 workers do not pass the quality control in that HIT" in found.notes


def test_what_there_is_not_is_named(tmp_path: Path) -> None:
    rows = [row("v", "A", 1), row("w", "A", 1)]
    with pytest.raises(AssessmentError, match="systems: 'B' is no system; the study has A"):
        collect(tmp_path, *rows)
    with pytest.raises(AssessmentError, match="criterion: 'wit' is none of the study's: overall, fun, dull"):
        collect(tmp_path, *rows, row("w", "B", 1), criterion="wit")
    with pytest.raises(TooFewError, match="no worker has rated 'A' and 'B' yet"):
        compare_sequentially(PairedDifferences(differences=np.zeros(0), reach=100, unit="", notes=[]), a="A", b="B")


def test_the_command_shows_the_looks(tmp_path: Path) -> None:
    generator = np.random.default_rng(2)
    rows = [
        row(f"w{n}", system, float(generator.integers(low, low + 40)), minute=2 * n)
        for n in range(80)
        for system, low in (("A", 50), ("B", 20))
    ]
    file = write_lines(tmp_path / "r.jsonl", STUDY, *rows)
    done = CliRunner().invoke(app, ["compare", str(file), "--sequential", "--systems", "A,B", "--criterion", "fun"])
    assert done.exit_code == 0, done.output
    assert "fun: a is better (a: A, b: B), decided after " in done.output
    assert "hedged-capital betting confidence sequence" in done.output
