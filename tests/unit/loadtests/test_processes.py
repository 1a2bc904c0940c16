"""The one process runner: what is started becomes ready, is paused, killed, started again, and ended."""

import sys

import psutil
import pytest
from support.conditions import wait_until
from turnscore_load.machine import ForeignHostError, free_port, port_of
from turnscore_load.processes import Process, StartError, answers, end_recorded, started

SERVER = """
import sys, subprocess
from http.server import BaseHTTPRequestHandler, HTTPServer
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/ready" else 404)
        self.end_headers()
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def server(folder, ready="/ready"):
    port = free_port()
    return Process([sys.executable, "-c", SERVER, port], folder, port=port, ready=ready)


def test_a_server_is_paused_started_again_at_its_port_and_ended_with_its_children(tmp_path):
    with started(server(tmp_path)) as process:
        assert answers(process.port, "/ready")
        assert process.cpu_seconds() > 0
        process.pause()
        wait_until(lambda: {each.status() for each in process.tree()} == {psutil.STATUS_STOPPED})
        process.resume()
        process.kill()
        assert not process.is_running
        process.start()
        tree = process.tree()
        assert len(tree) == 2
    assert not any(each.is_running() for each in tree)


def test_a_process_that_ends_instead_of_becoming_ready_is_reported_with_its_log(tmp_path):
    process = Process([sys.executable, "-c", "import sys; sys.exit('no such model')"], tmp_path, ready="/ready")
    with pytest.raises(StartError, match="ended with 1: no such model"), started(process):
        raise AssertionError("it is not ready")


@pytest.mark.parametrize(
    "url",
    ["http://example.org:3000", "https://127.0.0.1:3000", "http://127.0.0.1", "http://localhost:3000",
     "http://127.0.0.1:0", "http://a@127.0.0.1:3000", "http://127.0.0.2:3000", ""],
)  # fmt: skip
def test_load_goes_to_this_machine_alone(url):
    with pytest.raises(ForeignHostError):
        port_of(url)
    assert port_of("http://127.0.0.1:3000") == 3000


def test_what_a_run_that_was_killed_had_started_is_ended_and_nothing_else(tmp_path):
    record = tmp_path / "processes"
    with started(server(tmp_path)) as other:
        process = server(tmp_path)
        process.record = record
        with started(process):
            record.write_text(f"{record.read_text()}{other.process.pid} 1.0\n")  # an id that came to another program
            tree = process.tree()
            end_recorded(record)
            psutil.wait_procs(tree, timeout=30)
            assert not process.is_running
            assert len(tree) == 2
            assert not any(each.is_running() for each in tree)
            assert other.is_running
    assert not record.exists()
    end_recorded(record)
