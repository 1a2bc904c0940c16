"""experiments/quality_bundle.py: the value counts repeats, weights stay, and no figure of the old value is left."""

import random
from pathlib import Path

import pytest
from quality_bundle import app
from support.bundles import make_quality_bundle
from support.exporter_data import write_rows
from turnscore_assessment.agreement.bundles import make_turn
from turnscore_core.loaded_scorer import load_scorer, score_in_one_batch
from turnscore_core.scorers.quality import QualityOptions
from turnscore_core.scorers.scorer import RawScore
from turnscore_exporters.quality.value import REPEATS
from turnscore_models import Bundle, Threshold, read_bundle, starter_bundles, write_bundle
from typer.testing import CliRunner, Result

STARTER = next(folder for folder in starter_bundles() if folder.name == "quality")
SAID = "a good b c"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    made = make_quality_bundle(tmp_path_factory.mktemp("repeats") / "bundle")
    report = {"ratings": {"persona-zhao (chosen on)": {"turns": 5, "value": 0.5, "relevant": 0.4}}}
    update = {
        "threshold": Threshold(value=0.3, source="made up"),
        "agreement": {"report": report, "agreement_by_graph": {"fp32": {"persona-zhao (chosen on)": 0.5}}},
    }
    return write_bundle(made.folder, made.manifest.model_copy(update=update))


def write_ratings(folder: Path) -> None:
    """People like good words, and nobody who says again what was said."""
    chance = random.Random(2)
    rows: list[object] = []
    for number in range(400):
        last = f"{' '.join(chance.choices('abcdefghijklm', k=4))} {number}"
        is_repeat, word = number % 4 == 0, chance.choice(["good", "bad"])
        response = last if is_repeat else f"{word} {' '.join(chance.choices('abcdefghijklm', k=3))}"
        rating = 1.0 if is_repeat else 4.0 if word == "good" else 3.0
        rows.append({"set": "persona-zhao", "context": [last], "response": response, "rating": rating})
    write_rows(folder / "turn_ratings.jsonl.gz", rows)


def run(bundle: Path, data: Path) -> Result:
    given = [f"{bundle}/", "--data", str(data), "--version", "7.0.1", "--output", str(data / "new")]
    return CliRunner().invoke(app, ["repeats", *given])


def ask(bundle: Bundle, *context: tuple[str, str]) -> RawScore:
    return score_in_one_batch(
        load_scorer(bundle, next(iter(bundle.manifest.graphs))).scorer, [make_turn(context, SAID)]
    )[0]


def test_the_value_counts_repeats_and_only_what_depends_on_it_changes(bundle: Bundle, tmp_path: Path):
    write_ratings(tmp_path)
    result = run(bundle.folder, tmp_path)
    assert result.exit_code == 0, result.output
    made = read_bundle(tmp_path / "new")
    assert QualityOptions.model_validate(made.manifest.options).value.repeats == REPEATS
    changed = {name for name, digest in made.manifest.files.items() if digest != bundle.manifest.files[name]}
    assert changed == {"self_test.json"}
    parrot, other = [("user", SAID)], [("user", "d e f g")]
    assert ask(made, *other).value == ask(bundle, *other).value
    assert ask(made, *parrot).value < ask(bundle, *parrot).value
    assert ask(made, *parrot).details == ask(bundle, *parrot).details


def test_no_figure_of_the_old_value_is_left_in_the_manifest(bundle: Bundle, tmp_path: Path):
    write_ratings(tmp_path)
    result = run(bundle.folder, tmp_path)
    manifest = read_bundle(tmp_path / "new").manifest
    assert manifest.threshold is None
    agreement = manifest.agreement
    assert agreement["report"] == {"ratings": {"persona-zhao (chosen on)": {"turns": 5, "relevant": 0.4}}}
    before, after = agreement["before_repeats"], agreement["agreement_by_graph"]
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    assert before.pop("of") == "quality:0.0.1"
    for name in ("persona-zhao (chosen on)", "persona-zhao (fitted on)"):
        assert after["fp32"][name] > before[name] + 0.1
        assert f"{name}: {before[name]:.4f} -> {after['fp32'][name]:.4f}" in result.output


def test_another_scorers_bundle_is_refused(tmp_path: Path):
    write_ratings(tmp_path)
    result = run(STARTER.with_name("engagement"), tmp_path)
    assert result.exit_code == 1
    assert "is not a bundle of the scorer quality" in " ".join(result.output.split())
    assert not (tmp_path / "new").exists()


def test_the_starter_counts_repeats():
    starter = read_bundle(STARTER)
    assert QualityOptions.model_validate(starter.manifest.options).value.repeats == REPEATS
    parrot, other = ask(starter, ("user", SAID)), ask(starter, ("user", f"{SAID} and so on"))
    assert parrot.value < 0.5 * other.value
