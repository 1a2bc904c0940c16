"""Checkpoints that are no BERT, and names that nobody has."""

from pathlib import Path

import pytest
from support.exporter_data import save_tiny_bert
from turnscore_exporters.errors import EncoderError
from turnscore_exporters.pair_models.models import load_masked_model, load_pair_model


def test_other_models_and_unknown_names_are_refused(tiny_bert: Path, tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="cannot be loaded"):
        load_pair_model(str(tmp_path / "none"))
    save_tiny_bert(tmp_path)
    config = (tmp_path / "config.json").read_text().replace('"model_type": "bert"', '"model_type": "gpt2"')
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(EncoderError, match="expected bert or roberta"):
        load_masked_model(str(tmp_path))
