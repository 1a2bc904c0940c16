import random
from dataclasses import replace

import pytest
from support.exporter_data import build_sentence, write_rows
from turnscore_exporters.errors import CheckpointError
from turnscore_exporters.fed.language_model import read_texts, run_language_model_training
from turnscore_exporters.fed.model import load_checkpoint
from turnscore_exporters.options import LanguageModelOptions

SIZE = {"vocabulary": 320, "positions": 64, "width": 16, "layers": 1, "heads": 2}


@pytest.fixture
def data(tmp_path):
    generator = random.Random(0)
    said = [[build_sentence(generator, 6) for _ in range(5)] for _ in range(400)]
    rows = [{"source": ("sgd", "chat")[number % 2], "turns": each} for number, each in enumerate(said)]
    write_rows(tmp_path / "data" / "dialogue_text.jsonl.gz", rows)
    return tmp_path / "data"


def test_held_out_dialogues_are_not_trained_on(data):
    texts = read_texts(data)
    assert texts.held_out
    assert not set(texts.held_out) & set(texts.train)


def test_another_vocabulary_never_gets_the_tokenizer_that_lies_in_the_folder(data, tmp_path):
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
