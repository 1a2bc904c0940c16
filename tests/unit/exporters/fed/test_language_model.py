from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.exporter_data import build_sentence, write_rows
from turnscore_exporters.errors import CheckpointError
from turnscore_exporters.fed.language_model import read_texts, run_language_model_training
from turnscore_exporters.fed.model import load_checkpoint
from turnscore_exporters.options import LanguageModelOptions

SIZE = {"vocabulary": 320, "positions": 64, "width": 16, "layers": 1, "heads": 2}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    import random

    generator = random.Random(0)
    rows = [
        {"source": "sgd" if number % 2 else "chat", "turns": [build_sentence(generator, 6) for _ in range(5)]}
        for number in range(400)
    ]
    write_rows(tmp_path / "data" / "dialogue_text.jsonl.gz", list(rows))
    return tmp_path / "data"


def test_held_out_dialogues_are_not_trained_on(data: Path) -> None:
    texts = read_texts(data)
    assert texts.held_out
    assert not set(texts.held_out) & set(texts.train)


def test_an_interrupted_run_ends_with_the_weights_of_one_that_was_not(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, halted = (
        LanguageModelOptions(data=data, output=tmp_path / name, **SIZE, steps=6) for name in ("whole", "halted")
    )
    run_language_model_training(whole)
    monkeypatch.setattr("turnscore_exporters.fed.language_model.measure_perplexity", _stop)
    with monkeypatch.context() as patch:
        patch.setattr("turnscore_exporters.fed.language_model.LoopSettings", _halting_settings)
        patch.setattr("turnscore_exporters.fed.language_model.compute_loss", _failing_from(4))
        with pytest.raises(KeyboardInterrupt):
            run_language_model_training(halted)
    monkeypatch.setattr("turnscore_exporters.fed.language_model.measure_perplexity", lambda *_: 1.0)
    run_language_model_training(halted)
    expected, found = (load_checkpoint(str(tmp_path / name)).model.state_dict() for name in ("whole", "halted"))
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_another_vocabulary_never_gets_the_tokenizer_that_lies_in_the_folder(data: Path, tmp_path: Path) -> None:
    job = LanguageModelOptions(data=data, output=tmp_path / "lm", **SIZE, steps=1)
    smaller = replace(job, vocabulary=300)
    run_language_model_training(job)
    before = (job.output / "tokenizer.json").read_bytes()
    with pytest.raises(CheckpointError, match="belongs to another run"):
        run_language_model_training(smaller)
    assert (job.output / "tokenizer.json").read_bytes() == before
    (job.output / "state.pt").unlink()
    run_language_model_training(smaller)
    assert load_checkpoint(str(job.output)).tokenizer.get_vocab_size() == 300


def _stop(*_: object) -> float:
    raise AssertionError("an interrupted run measures nothing")


def _halting_settings(**settings: object) -> object:
    from turnscore_exporters.training.loop import LoopSettings

    return LoopSettings(**{**settings, "save_every": 2})  # type: ignore[arg-type]


def _failing_from(step: int) -> object:
    from turnscore_exporters.fed.language_model import compute_loss

    calls = iter(range(100))

    def compute(*arguments: object) -> object:
        if next(calls) >= step:
            raise KeyboardInterrupt
        return compute_loss(*arguments)  # type: ignore[arg-type]

    return compute
