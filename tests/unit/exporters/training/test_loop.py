"""The training loop, its states and folders, and encoders."""

import pytest
import torch
from support.exporter_data import save_tiny_bert
from torch import nn
from turnscore_exporters.errors import CheckpointError, EncoderError, ExporterError
from turnscore_exporters.training import loop
from turnscore_exporters.training.encoders import load_encoder, load_long_encoder

INPUTS = torch.linspace(-1, 1, 40).reshape(20, 2)


class InterruptionError(Exception):
    pass


def train_tiny(state, *, stop_at=None, run_key="a"):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 1))

    def step_loss(step):
        if step == stop_at:
            raise InterruptionError
        chosen = list(loop.choose_batch(len(INPUTS), 8, step))
        return (model(INPUTS[chosen]) - INPUTS[chosen].sum(1, keepdim=True)).square().mean()

    rates = {"learning_rate": 0.01, "weight_decay": 0.01}
    settings = loop.LoopSettings(steps=20, run_key=run_key, warm_up_steps=3, save_every=4, **rates)
    average = loop.WeightAverage(0.5, 2)
    loop.train(model, step_loss, settings, state_path=state, follower=average)
    return [*(weight.detach() for weight in model.parameters()), *average.state_dict().values()]


def test_resumed_run_ends_with_the_weights_of_one_that_was_not_interrupted(tmp_path):
    whole = train_tiny(None)
    with pytest.raises(InterruptionError):
        train_tiny(tmp_path / "state", stop_at=10)
    resumed = train_tiny(tmp_path / "state")
    assert all(torch.equal(left, right) for left, right in zip(whole, resumed, strict=True))


def test_state_of_another_run_and_a_broken_one_are_refused(tmp_path):
    train_tiny(tmp_path / "state")
    with pytest.raises(CheckpointError, match="belongs to another run"):
        train_tiny(tmp_path / "state", run_key="b")
    (tmp_path / "state").write_bytes(b"half a file")
    with pytest.raises(CheckpointError, match="state: cannot be read"):
        train_tiny(tmp_path / "state")


def test_the_best_weights_are_those_of_the_first_look_that_found_most():
    model, values = nn.Linear(1, 1, bias=False), iter([0.1, 0.7, 0.7, 0.3])
    best = loop.BestWeights(values.__next__, steps=8, looks=4)
    for step in range(8):
        nn.init.constant_(model.weight, step + 1)
        best.update(model, step)
    best.put_into(model)
    assert (model.weight.item(), best.found) == (4, {"value": 0.7, "step": 4})


def test_a_folder_whose_training_began_on_other_data_is_refused(tmp_path):
    """As where somebody tries the sample first."""
    sample, whole, output = tmp_path / "sample", tmp_path / "whole", tmp_path / "run"
    for folder, rows in ((sample, 1), (whole, 1000)):
        folder.mkdir()
        (folder / "dialogue_text.jsonl.gz").write_bytes(b"x" * rows)
    loop.claim_folder(output, sample)
    loop.claim_folder(output, sample)
    with pytest.raises(ExporterError, match=r"another dialogue_text.jsonl.gz; choose another folder"):
        loop.claim_folder(output, whole)
    (sample / "more.csv").write_text("a file that came later")
    loop.claim_folder(output, sample)


def test_figures_of_another_seed_or_encoder_are_not_shown_as_these(tmp_path):
    place = tmp_path / "state" / "choices.json"
    loop.claim_choices(place, {"encoder": "a/checkpoint", "seed": 0})
    loop.claim_choices(place, {"encoder": "a/checkpoint", "seed": 0})
    with pytest.raises(ExporterError, match="are of encoder a/checkpoint, seed 0; choose another folder"):
        loop.claim_choices(place, {"encoder": "b/checkpoint", "seed": 0})


def test_an_encoder_with_too_few_places_for_the_rows_is_refused_before_any_work(tmp_path):
    save_tiny_bert(tmp_path)
    assert load_encoder(str(tmp_path), 80).token_limit == 64, "a text is cut"
    assert load_long_encoder(str(tmp_path), 64).token_limit == 64
    with pytest.raises(EncoderError, match=r"reads 64 tokens, the rows have up to 80"):
        load_long_encoder(str(tmp_path), 80)
