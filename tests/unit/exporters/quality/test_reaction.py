"""The bundle of reaction is calibrated on judged user turns; encoder and heads stay in the bundle of quality."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.bundles import describe_heads, make_quality_bundle, save_heads
from support.exporter_data import write_rows
from torch import nn
from torch.nn import functional
from turnscore_assessment.data.dialogues import LabelledTurn, Population, read_judged_user_turns
from turnscore_core.loaded_scorer import load_scorer
from turnscore_core.scorers.quality import HEADS
from turnscore_core.scorers.reaction import REACTIONS, SIGNALS
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.options import ReactionExportOptions
from turnscore_exporters.quality import reaction
from turnscore_exporters.quality.bundle import write_head_set
from turnscore_exporters.quality.reaction import export_reaction, fit_reaction, score_user_turns
from turnscore_models.bundle import write_bundle


class Heads(nn.Module):
    """Good words please, bad ones frustrate: both read the last feature."""

    def __init__(self):
        super().__init__()
        self.reaction_hidden, self.reaction_head = nn.Linear(len(HEADS), 2), nn.Linear(2, len(REACTIONS))
        with torch.no_grad():
            self.reaction_hidden.weight.zero_()[:, -1] = torch.tensor([1.0, -1.0])
            signs = torch.tensor(
                [{"frustrated": -2.0, "satisfaction": 2.0, "pleased": 2.0}.get(n, 0.0) for n in REACTIONS]
            )
            self.reaction_head.weight.copy_(torch.stack([signs, -signs], 1))
            self.reaction_hidden.bias.zero_()
            self.reaction_head.bias.zero_()

    def forward(self, features):
        return self.reaction_head(functional.gelu(self.reaction_hidden(features))).sigmoid().unbind(1)


@pytest.fixture(scope="module")
def quality(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "quality"
    manifest = make_quality_bundle(folder).manifest
    write_head_set(Heads().eval(), REACTIONS, torch.randn(4, len(HEADS)), folder / "heads" / "reaction.onnx")
    heads = {**manifest.heads, "reaction": describe_heads(folder, "heads/reaction.onnx")}
    return write_bundle(folder, manifest.model_copy(update={"heads": heads}))


@pytest.fixture
def data(tmp_path, monkeypatch):
    rows = []
    kinds = [("good fine", 5.0, ["pleased"]), ("bad ugly", 1.0, ["frustrated"]), ("a b", 3.0, []), ("a b", 3.0, [])]
    for number in range(600):
        text, satisfaction, signals = kinds[number % 4]
        turns = [{"speaker": "system", "text": "c d e"}, {"speaker": "user", "text": f"{text} {number % 7}"}]
        row = {"set": "s", "dialogue": f"d{number}", "split": "train" if number % 5 else "dev", "turns": turns}
        shown = signals if number % 20 else []
        drawn = "random" if number % 3 else "likely signals"
        rows.append({**row, "drawn": drawn, "satisfaction": satisfaction, "signals": shown})
    write_rows(tmp_path / "judged_user_turns.jsonl.gz", rows)
    spoken = [
        LabelledTurn(context=(("system", "a"), ("user", f"{'good' if n % 2 else 'bad'} {n}")), response="b")
        for n in range(120)
    ]
    monkeypatch.setattr(reaction.dialogues, "read_population", lambda folder: Population(spoken, frozenset()))
    return tmp_path


def options_for(quality, data):
    output = quality.folder.parent / "reaction"
    return ReactionExportOptions(bundle=f"{quality.folder}/", data=data, version="3.0.0", output=output)


def test_satisfaction_and_signals_are_those_of_the_judged_turns(quality, data):
    made = export_reaction(options_for(quality, data))
    own = {"manifest.json", "calibration.json", "self_test.json", "heads"}
    assert {each.name for each in made.folder.iterdir()} == own
    before, after = (each.manifest.heads["reaction"].sha256 for each in (quality, made))
    assert before != after
    assert made.shared_folder == quality.folder
    turns = list(read_judged_user_turns(data / "judged_user_turns.jsonl.gz"))
    found = score_user_turns(made, turns)
    satisfied = np.array([turn.labels["satisfaction"] for turn in turns])
    assert found[:, 0].mean() == pytest.approx(satisfied.mean(), abs=0.05)
    loaded = load_scorer(made, "fp32")
    place = 1 + SIGNALS.index("pleased")
    shown = np.array([turn.labels.get("pleased", 0.0) for turn in turns])
    assert ((found[:, place] >= loaded.scorer.signal_thresholds["pleased"]) == (satisfied == 1)).all()
    assert found[:, place].mean() == pytest.approx(shown.mean(), abs=0.05)
    assert (len(made.calibration().percentiles), made.calibration().turns) == (101, 120)
    again = replace(options_for(made, data), output=quality.folder.parent / "again", version="3.1.0")
    assert export_reaction(again).shared_folder == quality.folder


def test_probabilities_are_those_of_a_turn_drawn_at_random():
    chance = np.random.default_rng(0)
    shown = [float(chance.random() < 0.5) for _ in range(400)]

    def judged(shown, **given):
        labels = {"satisfaction": 0.5, "abuse": float(shown), "asks_for_a_person": float(shown)}
        return LabelledTurn(context=(), response="", labels=labels, **given)

    likely, rare = [judged(each) for each in shown], [judged(place % 20 == 0, system="random") for place in range(400)]
    heads = np.repeat(chance.uniform(0.4, 0.6, (400, 1)), len(REACTIONS), 1)
    found = fit_reaction(heads, likely, [*likely, *rare])
    assert found["thresholds"]["asks_for_a_person"] < found["thresholds"]["abuse"], "a call that is missed costs more"
    abuse = found["calibrated"]["abuse"]
    logits = np.log(heads[:, 1] / (1 - heads[:, 1]))
    moved = 1 / (1 + np.exp(-(float(str(abuse["slope"])) * logits + float(str(abuse["bias"])))))
    assert moved.mean() == pytest.approx(0.05, abs=0.01)


def test_heads_of_another_form_or_of_no_user_turns_are_refused(tmp_path, data):
    folder = tmp_path / "other"
    manifest = make_quality_bundle(folder).manifest
    save_heads(folder / "heads" / "reaction.onnx", REACTIONS)
    heads = {**manifest.heads, "reaction": describe_heads(folder, "heads/reaction.onnx")}
    other = write_bundle(folder, manifest.model_copy(update={"heads": heads}))
    with pytest.raises(ExporterError, match="holds no reaction_head"):
        export_reaction(options_for(other, data))
    plain = make_quality_bundle(tmp_path / "plain")
    with pytest.raises(ExporterError, match="has no heads for user turns; name a bundle of reaction"):
        export_reaction(options_for(plain, data))
