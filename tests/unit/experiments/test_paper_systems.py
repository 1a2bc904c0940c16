"""The papers' systems: their data, their scores, and the whole road on tiny data."""

import json
import math

import numpy as np
import pytest
import torch
from baselines import app
from paper_systems import classifiers, job
from paper_systems.bert_systems import fit_overall
from paper_systems.data import EvalTurn, RandomNegatives, without_judged
from paper_systems.job import SYSTEMS
from paper_systems.page import read_eval_sets
from support.exporter_data import save_tiny_masked, save_tiny_pair, write_rows
from support.files import ROOT, invoke
from transformers import AutoModelForMaskedLM
from turnscore_exporters.data.pairs import make_exchange
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.pair_models.bundles import weigh_alike
from turnscore_exporters.pair_models.models import load_masked_model, score_masked


def exchanges(*rows):
    return [make_exchange(query, reply, dialogue=dialogue) for dialogue, query, reply in rows]


def test_dialogues_that_hold_a_judged_text_are_not_trained_on():
    mine = exchanges(
        ("a", "hi", "the red house stands on a hill"), ("a", "and then ?", "we left"), ("b", "hi", "we left")
    )
    as_context = EvalTurn(context=("The red house stands on a hill!",), response="nice")
    as_reference = EvalTurn(context=("hm",), response="nice", references=("the red house stands on a hill",))
    for judged in (as_context, as_reference):
        assert {each.dialogue for each in without_judged(mine, [judged])} == {"b"}
    assert without_judged(mine, [EvalTurn(context=("hi",), response="we left")]) == mine, "short phrases tell nothing"


def test_a_wrong_reply_is_of_another_dialogue_and_was_never_given_to_the_same_words():
    mine = exchanges(
        ("a", "tea?", "yes"), ("a", "who", "me"), ("b", "Tea?", "no"), ("c", "hm", "tea?"), ("d", "so", "ok")
    )
    drawn = [RandomNegatives(mine).draw(0, epoch) for epoch in range(30)]
    assert {mine[place].response for place in drawn} == {"ok"}


def test_a_response_among_its_own_references_is_measured_without_it(tmp_path):
    """The person who answered best wrote one of the references: the copy would give that response the full score."""
    row = {"system": "human", "context_id": "1", "context": ["hi"], "rating": 5, "response": "Hello there!"}
    rows = [
        {**row, "references": ["hello there", "good day"]},
        {**row, "references": ["Hello, there!"], "system": "other"},
    ]
    write_rows(tmp_path / "multiref" / "ratings.jsonl.gz", rows)
    [found] = read_eval_sets(tmp_path)
    assert [each.references for each in found.items] == [("good day",)], "a turn without any other is not asked"


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_masked_words_are_scored_as_the_published_model_scores_them(family, tmp_path):
    """By the plain model over whole rows: one masked copy at a time, no batch."""
    checkpoint = load_masked_model(str(save_tiny_masked(tmp_path, family)))
    said, response = "what did you do", "saw a film"
    [row] = checkpoint.lay_out([(said, response)])
    plain = AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    logs = []
    for place in range(row.response_start, row.response_end):
        ids = torch.tensor([row.ids])
        ids[0, place] = checkpoint.texts.mask_id
        inputs = {"input_ids": ids}
        if family == "bert":
            inputs["token_type_ids"] = (torch.arange(len(row.ids)) >= row.response_start).long()[None]
        with torch.inference_mode():
            logs.append(float(plain(**inputs).logits[0, place].log_softmax(-1)[row.ids[place]]))
    found = score_masked(checkpoint, [(said, response), ("hi", "never know whales like it"), ("hi", "")])
    assert found[0] == pytest.approx(np.mean(logs), abs=1e-5)
    assert math.isnan(found[2]), "a response without tokens has no score"


def test_a_part_that_hardly_differs_weighs_nothing_instead_of_showing_fp32_s_rounding():
    generator = np.random.default_rng(0)
    parts = {"mlm": generator.normal(-10, 1, 200), "retrieval": generator.normal(0.5, 2e-5, 200)}
    ratings = parts["mlm"] + 1e4 * parts["retrieval"]
    rounded = {name: values.astype(np.float32).astype(np.float64) for name, values in parts.items()}
    for formula in (fit_overall(parts, ratings.tolist()), weigh_alike(parts)):
        assert formula.parts["retrieval"].weight == 0
        assert formula.parts["mlm"].weight > 0.4
        assert formula.apply(rounded) == pytest.approx(formula.apply(parts), abs=1e-5)
    with pytest.raises(ExporterError, match="retrieval by 2e-05"):
        weigh_alike({"retrieval": parts["retrieval"]})


@pytest.fixture
def _few_rounds(monkeypatch):
    for module in (job, classifiers):
        monkeypatch.setattr(module, "ROUNDS", 10)
    for name, few in {"SLOW_TURNS": 20, "SLOW_CONTEXTS": 3, "MOST_CONTEXTS": 20, "MOST_HELD_OUT": 100}.items():
        monkeypatch.setattr(job, name, few)


@pytest.mark.usefixtures("_few_rounds")
def test_every_baseline_is_measured_and_compared_with_what_was_published(data_folder, tmp_path):
    page = tmp_path / "baselines.md"
    checkpoint = save_tiny_pair(tmp_path / "bert", "bert")
    options = ["--data", data_folder, "--output", tmp_path / "out", "--encoder", checkpoint, "--any-counts"]
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
def test_the_first_training_runs_as_documented(data_folder, tmp_path, monkeypatch):
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    [words] = [line.split()[2:] for line in page.splitlines() if line.startswith("python experiments/baselines.py")]
    monkeypatch.chdir(tmp_path)
    data = tmp_path / words[words.index("--data") + 1]
    data.parent.mkdir(parents=True)
    data.symlink_to(data_folder)
    invoke(app, words)
    report = tmp_path / words[words.index("--output") + 1] / "svm" / "report.json"
    assert set(json.loads(report.read_text(encoding="utf-8"))["training"]["tested"]) == {"published", "corrected"}
