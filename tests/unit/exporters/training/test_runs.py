"""A run's folder: what it is of, and that it goes on with nothing else."""

from pathlib import Path

import pytest
from turnscore_exporters.engagement.grid import claim_choices
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.training.runs import claim_folder


def test_a_folder_whose_training_began_on_other_data_is_refused(tmp_path: Path) -> None:
    """As where somebody tries the sample first."""
    sample, whole, output = tmp_path / "sample", tmp_path / "whole", tmp_path / "run"
    for folder, rows in ((sample, 1), (whole, 1000)):
        folder.mkdir()
        (folder / "dialogue_text.jsonl.gz").write_bytes(b"x" * rows)
    claim_folder(output, sample)
    claim_folder(output, sample)
    with pytest.raises(ExporterError, match=r"another dialogue_text.jsonl.gz; choose another folder"):
        claim_folder(output, whole)
    (sample / "more.csv").write_text("a file that came later")
    claim_folder(output, sample)


def test_a_grid_of_another_seed_or_encoder_is_not_shown_as_this_one(tmp_path: Path) -> None:
    claim_choices(tmp_path, {"encoder": "minilm-l6", "seed": 0})
    claim_choices(tmp_path, {"encoder": "minilm-l6", "seed": 0})
    with pytest.raises(ExporterError, match="choose another folder"):
        claim_choices(tmp_path, {"encoder": "minilm-l6", "seed": 1})
