"""Every baseline walks the whole road on tiny data: train, measure, one page and its rows, and nothing twice."""

import json
from pathlib import Path

import pytest
from baselines import app
from paper_systems import classifiers, job
from paper_systems.job import SYSTEMS
from support.exporter_data import save_tiny_pair
from support.files import invoke
from turnscore_assessment.sample_data import write_sample

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "sample"
    write_sample(folder)
    return folder


@pytest.fixture
def _few_rounds(monkeypatch):
    for module in (job, classifiers):
        monkeypatch.setattr(module, "ROUNDS", 10)
    for name, few in {"SLOW_TURNS": 20, "SLOW_CONTEXTS": 3, "MOST_CONTEXTS": 20, "MOST_HELD_OUT": 100}.items():
        monkeypatch.setattr(job, name, few)


@pytest.mark.usefixtures("_few_rounds")
def test_every_baseline_is_measured_and_compared_with_what_was_published(sample, tmp_path):
    page = tmp_path / "baselines.md"
    checkpoint = save_tiny_pair(tmp_path / "bert", "bert")
    options = ["--data", sample, "--output", tmp_path / "out", "--encoder", checkpoint, "--any-counts"]
    options += ["--exchanges", 100, "--steps", 3, "--turns", 60, "--rows", tmp_path / "rows.json", "--page", page]
    invoke(app, options)
    for name in SYSTEMS:
        report = json.loads((tmp_path / "out" / name / "report.json").read_text(encoding="utf-8"))
        for measured in report["development"].values():
            assert "length in characters" in measured["rows"]
            assert len(measured["rows"]) >= 3
            assert all("given_length" in figures for figures in measured["rows"].values())
    shown = page.read_text(encoding="utf-8").partition("## Beside published figures")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in shown.splitlines()]
    found = {cells[0].removeprefix("| "): cells[1:] for cells in rows if len(cells) == 6}
    assert {name.partition(":")[0].partition(",")[0] for name in found} >= set(SYSTEMS)
    assert all(cells[-1].removesuffix(" |") for cells in found.values()), "a reason, or where they differ"
    figure, published, here, distance, _ = found["ruber: unreferenced"]
    assert (figure, published) == ("DailyDialog++ test, adversarial responses: accuracy", "0.650")
    assert float(distance) == pytest.approx(float(here) - 0.65, abs=0.0011)


@pytest.mark.usefixtures("_few_rounds")
def test_the_first_training_runs_as_documented(sample, tmp_path, monkeypatch):
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    [words] = [line.split()[2:] for line in page.splitlines() if line.startswith("python experiments/baselines.py")]
    monkeypatch.chdir(tmp_path)
    data = tmp_path / words[words.index("--data") + 1]
    data.parent.mkdir(parents=True)
    data.symlink_to(sample)
    invoke(app, words)
    report = tmp_path / words[words.index("--output") + 1] / "svm" / "report.json"
    assert set(json.loads(report.read_text(encoding="utf-8"))["training"]["tested"]) == {"published", "corrected"}
