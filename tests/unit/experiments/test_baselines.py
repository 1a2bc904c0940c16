"""Every baseline walks the whole road on tiny data: train, measure, one page and its rows, and nothing twice."""

import json
from pathlib import Path

import pytest
from baselines import app
from paper_systems import classifiers, job
from paper_systems.job import SYSTEMS
from support.exporter_data import save_tiny_pair
from turnscore_assessment.sample_data import write_sample
from typer.testing import CliRunner

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("data") / "sample"
    write_sample(data)
    return data


@pytest.fixture(scope="module")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("baselines")
    run(folder, output)
    return output


def run(folder: Path, output: Path, *others: str, ends_with: int = 0) -> str:
    checkpoint = output / "bert"
    if not checkpoint.exists():
        save_tiny_pair(checkpoint, "bert")
    options = ["--data", str(folder), "--output", str(output), "--encoder", str(checkpoint), "--any-counts"]
    options += ["--exchanges", "200", "--steps", "3", "--turns", "60", "--rows", str(output / "rows.json")]
    options += ["--page", str(output / "baselines.md"), *others]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "ROUNDS", 10)
        patch.setattr(classifiers, "ROUNDS", 10)
        result = CliRunner().invoke(app, options)
    assert result.exit_code == ends_with, result.output
    return result.output


def test_every_baseline_is_measured_with_length_next_to_it(trained: Path) -> None:
    for name in SYSTEMS:
        report = json.loads((trained / name / "report.json").read_text(encoding="utf-8"))
        for measured in report["development"].values():
            assert "length in characters" in measured["rows"]
            assert len(measured["rows"]) >= 3
            assert all("given_length" in figures for figures in measured["rows"].values())
    ruber = json.loads((trained / "ruber" / "report.json").read_text(encoding="utf-8"))
    assert {"unreferenced", "referenced", "min", "mean"} <= ruber["development"]["multiref"]["rows"].keys()
    assert "referenced" not in ruber["development"]["persona-zhao (chosen on)"]["rows"]


def test_the_page_says_of_each_system_what_was_published_or_why_nothing_is(trained: Path) -> None:
    page = (trained / "baselines.md").read_text(encoding="utf-8")
    rows = [
        line.split(" | ")
        for line in page.partition("## Beside published figures")[2].partition("\n## ")[0].splitlines()
    ]
    found = {cells[0].removeprefix("| "): cells[1:] for cells in rows if len(cells) == 6}
    assert {name.partition(":")[0].partition(",")[0] for name in found} >= set(SYSTEMS)
    assert all(cells[-1].removesuffix(" |") for cells in found.values()), "a reason, or where they differ"
    figure, published, here, distance, _ = found["ruber: unreferenced"]
    assert (figure, published) == ("DailyDialog++ test, adversarial responses: accuracy", "0.650")
    assert float(distance) == pytest.approx(float(here) - 0.65, abs=0.0011)
    assert found["svm, corrected labels"][2] != "-"
    assert found["svm, corrected labels"][3] == "-", "no distance where no number was printed"


def test_the_sample_s_first_training_runs_as_documented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    [words] = [line.split()[2:] for line in page.splitlines() if line.startswith("python experiments/baselines.py")]
    monkeypatch.setattr(job, "ROUNDS", 10)
    monkeypatch.setattr(classifiers, "ROUNDS", 10)
    monkeypatch.chdir(tmp_path)
    write_sample(tmp_path / words[words.index("--data") + 1])
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    report = tmp_path / words[words.index("--output") + 1] / "svm" / "report.json"
    assert set(json.loads(report.read_text(encoding="utf-8"))["training"]["tested"]) == {"published", "corrected"}
