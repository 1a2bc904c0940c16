"""Load goes to this machine and nowhere else."""

import pytest
from turnscore_load.address import ForeignHostError, port_of


def test_this_machine_is_taken():
    assert port_of("http://127.0.0.1:3000") == 3000


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org:3000",
        "http://10.0.0.1:3000",
        "http://127.0.0.1.example.org:3000",
        "http://127.0.0.1@example.org:3000",
        "http://localhost:3000",  # a name may lead anywhere
        "https://127.0.0.1:3000",
        "http://127.0.0.1",
        "http://127.0.0.1:0",
        "http://127.0.0.1:99999",
        "127.0.0.1:3000",
        "",
    ],
)
def test_any_other_address_is_refused(url: str):
    with pytest.raises(ForeignHostError, match=r"127\.0\.0\.1"):
        port_of(url)
