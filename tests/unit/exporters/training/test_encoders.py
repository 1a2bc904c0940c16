"""Encoders by folder: what they read, and who is refused."""

from pathlib import Path

import pytest
from support.exporter_data import save_tiny_bert
from turnscore_exporters.errors import EncoderError
from turnscore_exporters.training.encoders import load_encoder, load_long_encoder


def test_an_encoder_with_too_few_places_for_the_rows_is_refused_before_any_work(tmp_path: Path) -> None:
    save_tiny_bert(tmp_path)
    assert load_encoder(str(tmp_path), 80).token_limit == 64, "a text is cut"
    assert load_long_encoder(str(tmp_path), 64).token_limit == 64
    with pytest.raises(EncoderError, match=r"reads 64 tokens, the rows have up to 80"):
        load_long_encoder(str(tmp_path), 80)
