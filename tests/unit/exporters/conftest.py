import pytest
from support.exporter_data import save_tiny_bert
from turnscore_assessment.sample_data import write_sample


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory):
    return save_tiny_bert(tmp_path_factory.mktemp("tiny_bert"))


@pytest.fixture(scope="session")
def data_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "sample"
    write_sample(folder)
    return folder
