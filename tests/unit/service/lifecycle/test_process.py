"""The line with which a start ends: whose it is, and which address it has."""

import socket
import sys
from pathlib import Path

import pytest
from turnscore_service.lifecycle.process import is_last_ready, served_url


def test_one_worker_is_the_last_that_is_ready_whatever_restarts(tmp_path: Path):
    told = [is_last_ready(worker, 3, tmp_path) for worker in (0, 0, 2, 1, 1, 0)]
    assert told == [False, False, False, True, False, False]


def test_each_worker_that_cannot_write_into_the_folder_says_that_it_is_ready(tmp_path: Path):
    assert [is_last_ready(worker, 3, tmp_path / "missing") for worker in (0, 1)] == [True, True]


def test_the_address_is_that_of_the_settings_where_bentoml_gave_no_socket():
    assert served_url("127.0.0.1", 3000) == "http://127.0.0.1:3000"
    assert served_url("::1", 3000) == "http://[::1]:3000"


@pytest.mark.parametrize(("words", "scheme"), [([], "http"), (["--ssl-certfile", "cert.pem"], "https")])
def test_the_address_is_that_of_the_socket_that_bentoml_gave(
    words: list[str], scheme: str, monkeypatch: pytest.MonkeyPatch
):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr(sys, "argv", ["worker", "--fd", str(listener.fileno()), *words])
        assert served_url("0.0.0.0", 3000) == f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        assert listener.fileno() > 0  # still open
