"""What tests of several packages share; what is made is made once in each process of tests."""

import pytest
from turnscore_core.scorers.quality import SplitEncoder


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


@pytest.fixture
def passes(monkeypatch):
    """The turns of every pass of a split encoder."""
    found = []
    run = SplitEncoder.run

    def counted(self, turns, *args):
        found.append(len(turns))
        return run(self, turns, *args)

    monkeypatch.setattr(SplitEncoder, "run", counted)
    return found
