"""experiments/quality_bundle.py: a value fitted again follows the ratings, and no figure of the old one is left."""

import random
from pathlib import Path

import pytest
from quality_bundle import app
from support.bundles import make_quality_bundle
from support.exporter_data import write_rows
from turnscore_assessment.agreement.scoring import make_turn
from turnscore_core.loaded_scorer import load_scorer, score_in_one_batch
from turnscore_core.scorers.quality import QualityOptions
from turnscore_core.scorers.scorer import RawScore
from turnscore_exporters.quality.value import REPEATS, WEIGHED
from turnscore_models import Bundle, Threshold, read_bundle, starter_bundles, write_bundle
from typer.testing import CliRunner, Result

STARTER = next(folder for folder in starter_bundles() if folder.name == "quality")
SAID = "a good b c"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    made = make_quality_bundle(tmp_path_factory.mktemp("value") / "bundle")
    update = {
        "threshold": Threshold(value=0.3, source="made up"),
        "agreement": {"report": {"ratings": {}}, "agreement_by_graph": {"fp32": {}}, "kept": 1},
    }
    return write_bundle(made.folder, made.manifest.model_copy(update=update))


def write_judged(folder: Path) -> None:
    """Judges like good words."""
    chance = random.Random(2)
    rows: list[object] = []
    for number in range(300):
        word = chance.choice(["good", "bad"])
        marks = dict.fromkeys(("overall", "relevant", "engaging", "sound"), 4.5 if word == "good" else 1.5)
        response = {"text": f"{word} {' '.join(chance.choices('abcdefghijklm', k=3))}", "made": "as said", **marks}
        context = [{"speaker": "user", "text": " ".join(chance.choices("abcdefghijklm", k=4))}]
        row = {"set": "dstc9", "dialogue": f"d{number}", "split": "dev", "context": context, "responses": [response]}
        rows.append(row)
    write_rows(folder / "judged_turns.jsonl.gz", rows)


def run(bundle: Path, data: Path) -> Result:
    given = [f"{bundle}/", "--data", str(data), "--version", "7.0.1", "--output", str(data / "new")]
    return CliRunner().invoke(app, ["value", *given, "--context-turns", "2"])


def ask(bundle: Bundle, *context: tuple[str, str]) -> RawScore:
    scorer = load_scorer(bundle, next(iter(bundle.manifest.graphs))).scorer
    return score_in_one_batch(scorer, [make_turn(context, SAID)])[0]


def test_the_value_is_fitted_again_and_only_what_depends_on_it_changes(bundle: Bundle, tmp_path: Path):
    write_judged(tmp_path)
    result = run(bundle.folder, tmp_path)
    assert result.exit_code == 0, result.output
    made = read_bundle(tmp_path / "new")
    options = QualityOptions.model_validate(made.manifest.options)
    assert (options.value.repeats, options.layout.context_turns) == (REPEATS, 2)
    assert set(options.value.weights) == set(WEIGHED)
    assert max(options.value.weights.values()) > 0
    changed = {name for name, digest in made.manifest.files.items() if digest != bundle.manifest.files[name]}
    assert changed == {"self_test.json"}
    assert ask(made, ("user", "d e f g")).details == ask(bundle, ("user", "d e f g")).details
    manifest = made.manifest
    assert (manifest.threshold, manifest.good_threshold) == (None, None)
    assert manifest.agreement == {"kept": 1, "agreement_by_graph": {"fp32": {}}}
    assert "of judged-live" in str(manifest.training["value.json"])


def test_the_starter_counts_repeats():
    starter = read_bundle(STARTER)
    assert QualityOptions.model_validate(starter.manifest.options).value.repeats == REPEATS
    parrot, other = ask(starter, ("user", SAID)), ask(starter, ("user", f"{SAID} and so on"))
    assert parrot.value < 0.5 * other.value
