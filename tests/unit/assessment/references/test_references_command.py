"""`turnscore references`: what it prints, writes and refuses; with an encoder bundle made on the spot."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest
from support.bundles import make_bundle, make_encoder_bundle
from support.files import invoke, write_lines
from turnscore_assessment.references.vector_metrics import BundleEncoder
from turnscore_client._command.registry import app

SAID = ["good fine", "bad ugly", "a b c", "nice good", "wrong x", "y z"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundles") / "encoder"
    make_encoder_bundle(folder)
    return f"{folder}/"


@pytest.fixture
def file(tmp_path):
    rows = []
    for number, text in enumerate(SAID * 2):
        texts = [text] if number else [text, "fine"]
        said = {"hypotheses": texts, "references": ["good fine nice", SAID[(number + 1) % 6], "a b d"]}
        own = {"context_id": f"c{number // 2}", "system": "ab"[number % 2], "rating": 5 - number % 3 + number / 10}
        rows.append({**own, **said})
    return write_lines(tmp_path / "rows.jsonl", *rows)


def run(*arguments, code=0):
    return invoke(app, ["references", *arguments], code)


def test_the_default_metric_is_the_encoder_if_given_over_the_best_reference(file, bundle, tmp_path):
    done = run(file, "--encoder", bundle, "--json", tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    assert {(each["metric"], each["reducer"], each["level"]) for each in found["results"]} == {
        ("encoder", "max", "segment")
    }
    assert "cosine of sentence vectors by encoder:0.0.1" in found["results"][0]["definition"]
    assert [each["references"] for each in found["correlations"]] == [1, 2, 3]
    assert "encoder" in done.output
    run(file, "--json", tmp_path / "found.json")
    assert {each["metric"] for each in json.loads((tmp_path / "found.json").read_text())["results"]} == {"rouge-l"}


def test_every_result_names_metric_definition_reducer_and_tokenisation(file, bundle, tmp_path):
    metrics = ["encoder", "bleu-2", "bleu-2@sacrebleu"]
    reducers = ["single", "max", "mean", "joint", "recall"]
    asked = [part for name in metrics for part in ("--metric", name)]
    asked += [part for name in reducers for part in ("--reducer", name)]
    run(file, *asked, "--encoder", bundle, "--json", tmp_path / "found.json", "--plot", tmp_path / "plot.svg")
    found = json.loads((tmp_path / "found.json").read_text())
    for each in [*found["results"], *found["correlations"]]:
        assert all(each[name] for name in ("metric", "definition", "reducer", "tokenisation"))
    assert {each["level"] for each in found["results"]} == {"segment", "corpus"}
    assert {(each["system"], each["rows"], each["hypotheses"]) for each in found["results"]} == {
        ("a", 6, 7),
        ("b", 6, 6),
    }
    assert {each["reducer"] for each in found["results"] if each["metric"] == "encoder"} == set(reducers) - {"joint"}
    against = {each["metric"]: each["against_first"] for each in found["correlations"] if each["reducer"] == "max"}
    assert against["encoder"] is None
    assert 0 <= against["bleu-2"]["p"] <= 1
    drawn = ElementTree.fromstring((tmp_path / "plot.svg").read_text())
    names = {text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert set(metrics) <= names


def test_a_file_without_ratings_has_no_correlations_and_no_plot(file, tmp_path):
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    write_lines(file, *({**row, "rating": None} for row in rows))
    done = run(file, "--metric", "bleu-1", "--json", tmp_path / "found.json")
    assert json.loads((tmp_path / "found.json").read_text())["correlations"] == []
    assert "Pearson" not in done.output
    assert "no row has a rating" in run(file, "--metric", "bleu-1", "--plot", tmp_path / "plot.svg", code=1).output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--metric", "encoder"], "--encoder"),
        (["--metric", "bleu-9"], "no metric is called bleu-9"),
        (["--metric", "bleu-1", "--reducer", "best"], "no reducer is called best"),
        (["--metric", "bleu-1", "--tokenisation", "letters"], "no tokenisation is called letters"),
        (["--encoder", "./no-such-bundle/"], "no-such-bundle"),
    ],
)
def test_what_cannot_be_done_is_said(file, arguments, said):
    done = run(file, *arguments, code=1)
    assert said in done.output
    assert "Traceback" not in done.output


def test_a_bundle_of_another_kind_is_refused(file, tmp_path):
    make_bundle(tmp_path / "other")
    assert "of kind engagement, not encoder" in run(file, "--encoder", f"{tmp_path / 'other'}/", code=1).output


def test_a_text_s_vector_does_not_depend_on_what_is_encoded_with_it(bundle):
    encoder = BundleEncoder(bundle)
    texts = [*SAID, "a " * 50, "good"]
    together = encoder.encode(texts)
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    assert np.abs(together - alone).max() < 1e-6
    assert np.linalg.norm(together, axis=1) == pytest.approx(np.ones(len(texts)))
    assert len(encoder.encode([])) == 0
