"""What tests of exporters, experiments and the assessment share: each process of tests makes it once."""

import pytest


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory):
    from support.exporter_data import save_tiny_bert  # imports torch

    return save_tiny_bert(tmp_path_factory.mktemp("tiny_bert"))


@pytest.fixture(scope="session")
def data_folder(tmp_path_factory):
    """The made-up sample of the public sets."""
    from turnscore_assessment.sample_data import write_sample

    folder = tmp_path_factory.mktemp("data") / "sample"
    write_sample(folder)
    return folder
