"""Every baseline walks the whole road on tiny data: train, measure, one page and its rows, and nothing twice."""

import json
import random
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from baselines import app
from paper_systems import classifiers, job
from paper_systems.job import SYSTEMS
from paper_systems.plan import FULL, SMALL, Size, find_size
from support.exporter_data import build_sentence, save_tiny_pair, write_data, write_rows
from turnscore_assessment.sample_data import write_sample
from typer.testing import CliRunner

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The engagement data, with rated turns and rated responses with references."""
    data = write_data(tmp_path_factory.mktemp("data"))
    generator = random.Random(3)
    rated: list[object] = [
        {
            "set": "persona-zhao", "system": "s", "rating": 1 + number % 5,
            "context": [f"{build_sentence(generator, 5)} word{number}"], "response": build_sentence(generator, 4),
        }
        for number in range(120)
    ]  # fmt: skip
    write_rows(data / "turn_ratings.jsonl.gz", rated)
    multiref: list[object] = [
        {
            "system": "s", "context_id": str(number), "context": [build_sentence(generator, 5)], "rating": number % 5,
            "response": build_sentence(generator, 4), "references": [build_sentence(generator, 4)],
        }
        for number in range(40)
    ]  # fmt: skip
    write_rows(data / "multiref" / "ratings.jsonl.gz", multiref)
    responses = {kind: [build_sentence(generator, 4)] * 5 for kind in ("relevant", "random", "adversarial")}
    contexts: list[object] = [
        {"split": split, "context": [build_sentence(generator, 5)], **responses} for split in ("dev", "test", "test")
    ]
    write_rows(data / "adversarial_responses.jsonl.gz", contexts)
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


def test_every_baseline_is_measured_with_length_beside_it(trained: Path) -> None:
    for name in SYSTEMS:
        report = json.loads((trained / name / "report.json").read_text(encoding="utf-8"))
        for measured in report["development"].values():
            assert "length in characters" in measured["rows"]
            assert len(measured["rows"]) >= 3
            assert all("given_length" in figures for figures in measured["rows"].values())
    ruber = json.loads((trained / "ruber" / "report.json").read_text(encoding="utf-8"))
    assert {"unreferenced", "referenced", "min", "mean"} <= ruber["development"]["multiref"]["rows"].keys()
    assert "referenced" not in ruber["development"]["persona-zhao (chosen on)"]["rows"]


def test_no_baseline_is_asked_about_dialogues_that_it_was_trained_on(trained: Path) -> None:
    measured = {
        name: json.loads((trained / name / "report.json").read_text(encoding="utf-8"))["development"]
        for name in ("ruber", "3p", "usr")
    }
    assert "convai-thumbs (fitted on)" in measured["ruber"]
    assert "convai-thumbs (fitted on)" not in measured["3p"]
    assert "persona-zhao (fitted on)" in measured["ruber"]
    assert "persona-zhao (fitted on)" not in measured["usr"]


def test_the_page_sets_the_classifiers_beside_the_paper_under_both_readings(trained: Path) -> None:
    page = (trained / "baselines.md").read_text(encoding="utf-8")
    for classifier in ("svm", "bi-rnn"):
        for labels in ("published", "corrected"):
            assert f"| {classifier} | {labels} | " in page
    rows = json.loads((trained / "rows.json").read_text(encoding="utf-8"))
    assert "ctx-ruber" in rows["sets"]["persona-zhao (chosen on)"]
    assert "length in characters" not in rows["sets"]["persona-zhao (chosen on)"]


def test_the_page_says_of_each_system_what_was_published_or_why_nothing_is_beside_it(trained: Path) -> None:
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


def test_the_full_size_has_a_section_in_which_each_score_stands_below_the_small_one(
    trained: Path, folder: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    run(folder, trained, "--page", str(page), "--larger", str(trained))
    section = page.read_text(encoding="utf-8").partition("## Both sizes")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ctx-ruber |")]
    small, full = rows
    assert (small[1], full[1]) == ("small", "paper's")
    assert small[2:] == full[2:], "here they are one training"
    report = json.loads((trained / "ctx-ruber" / "report.json").read_text(encoding="utf-8"))
    assert small[2] == f"{report['held_out']['auc']['ctx-ruber']:.3f}"
    assert "## Both sizes" not in (trained / "baselines.md").read_text(encoding="utf-8")
    published = page.read_text(encoding="utf-8").partition("## Beside published figures")[2].partition("\n## ")[0]
    found = [line.split(" | ") for line in published.splitlines() if line.startswith("| ruber: unreferenced | ")]
    assert len(found) == 2
    for cells in found:
        assert cells[3:5] == cells[5:7], "here they are one training"
        assert float(cells[3]) == pytest.approx(float(cells[2]) + float(cells[4]), abs=0.0011)


def test_a_folder_without_trainings_is_no_full_size(trained: Path, folder: Path, tmp_path: Path) -> None:
    assert "no finished training of any of ruber" in run(folder, trained, "--larger", str(tmp_path), ends_with=1)


def test_responses_are_compared_by_kind_on_the_test_split_alone(trained: Path) -> None:
    found = json.loads((trained / "ctx-ruber" / "report.json").read_text(encoding="utf-8"))["adversarial"]
    assert found["contexts"] == 2
    assert set(found["random"]) == {"ctx-ruber", "length"}
    assert 0 <= found["adversarial"]["ctx-ruber"]["accuracy"] <= 1
    assert found["random"]["length"]["accuracy"] is None, "a length is no share"


def test_each_size_is_of_every_baseline_and_a_choice_stands_in_place_of_its_own() -> None:
    assert list(SMALL) == list(FULL) == list(SYSTEMS)
    for name in SYSTEMS:
        assert FULL[name].steps >= SMALL[name].steps
        assert FULL[name].exchanges >= SMALL[name].exchanges
    chosen = find_size("usr", is_full=True).with_choices(steps=3, exchanges=200)
    assert (chosen.steps, chosen.exchanges, chosen.batch_size) == (3, 200, FULL["usr"].batch_size)
    assert find_size("svm", is_full=False).with_choices(steps=3).steps == 0, "it has no steps"


@pytest.mark.parametrize(("column", "sizes"), [(2, SMALL), (3, FULL)], ids=["small", "full"])
def test_the_sizes_that_the_page_names_are_those_that_are_trained(column: int, sizes: Mapping[str, Size]) -> None:
    page = (ROOT / "docs" / "models" / "baselines.md").read_text(encoding="utf-8").partition("## Two sizes")[2]
    cells = {row[1].strip(" `"): row for line in page.splitlines() if len(row := line.split("|")) == 6}
    for name, size in sizes.items():
        figures = [each.strip() for each in re.split(", (?=[0-9-])", cells[name][column].strip())]
        told = [float(each.replace(",", "")) for each in figures if each != "-"]
        assert told == [each for each in (size.exchanges, size.steps, size.learning_rate) if each], name


def test_a_second_run_trains_nothing_and_other_choices_train_anew(trained: Path, folder: Path) -> None:
    assert run(folder, trained).count("is trained already") == len(SYSTEMS)
    options = ["--data", str(folder), "--output", str(trained), "--any-counts", "--seed", "5", "--turns", "60"]
    result = CliRunner().invoke(app, ["svm", *options])
    assert (result.exit_code, "is trained already" in result.output) == (0, False), result.output
    for encoder in ("one/bert", "other/bert"):  # of which the report names `bert`
        result = CliRunner().invoke(app, ["svm", *options, "--encoder", encoder])
        assert (result.exit_code, "is trained already" in result.output) == (0, False), result.output


def test_an_unknown_baseline_is_refused_by_name(folder: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bleu", "--data", str(folder), "--output", str(tmp_path / "o")])
    assert result.exit_code == 1
    assert "no baseline is called 'bleu'; choose one of ruber, ctx-ruber" in result.output


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


def test_seconds_of_a_training_that_was_resumed_are_a_lower_bound(trained: Path, folder: Path, tmp_path: Path) -> None:
    def cells(page: Path) -> list[str]:
        section = page.read_text(encoding="utf-8").partition("## Sizes")[2].partition("\n## ")[0]
        rows = [line for line in section.splitlines() if line.startswith(("| ctx-ruber |", "| *together* |"))]
        return [cell for row in rows for cell in row.strip("| ").split(" | ")[-2:]]

    assert not [cell for cell in cells(trained / "baselines.md") if cell.startswith(">")]
    (trained / "ctx-ruber" / "report.json").unlink()  # as if it had been interrupted while it was measured
    run(folder, trained, "--page", str(tmp_path / "page.md"))
    found = cells(tmp_path / "page.md")
    assert len(found) == 4
    assert all(cell.startswith("> ") for cell in found)
