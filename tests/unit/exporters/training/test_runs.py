"""A run's folder: what it is of, and that it goes on with nothing else."""

from pathlib import Path

import pytest
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.training.loop import claim_choices, claim_folder


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


def test_figures_of_another_seed_or_encoder_are_not_shown_as_these(tmp_path: Path) -> None:
    place = tmp_path / "state" / "choices.json"
    claim_choices(place, {"encoder": "a/checkpoint", "seed": 0})
    claim_choices(place, {"encoder": "a/checkpoint", "seed": 0})
    with pytest.raises(ExporterError, match="are of encoder a/checkpoint, seed 0; choose another folder"):
        claim_choices(place, {"encoder": "b/checkpoint", "seed": 0})
