import pytest
from support.exporter_data import save_tiny_bert


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory):
    return save_tiny_bert(tmp_path_factory.mktemp("tiny_bert"))
