"""The image, run as a cluster would: read-only root, no privileges, any user. `make test-image` builds and tests it."""

import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from support import plain_http
from support.conditions import wait_until
from turnscore_client import TurnScoreClient, TurnScoreGrpcClient
from turnscore_load.machine import free_port

IMAGE = os.environ.get("IMAGE_UNDER_TEST", "")
RUNNER = next((name for name in ("podman", "docker") if shutil.which(name)), "")
MOST_BYTES = 700_000_000  # Specified: the image for CPUs with the starter models, unpacked.

pytestmark = [
    pytest.mark.skipif(not IMAGE, reason="IMAGE_UNDER_TEST names no image; `make test-image` builds one"),
    pytest.mark.skipif(not RUNNER, reason="neither podman nor docker is on this machine"),
]


def run(*words):
    done = subprocess.run([RUNNER, *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def flags():
    """What podman needs where a container of ours is itself the machine: no systemd, and another runtime than crun."""
    if RUNNER == "docker":
        return []
    runtime = ["--runtime", "runc"] if shutil.which("runc") else []
    return [*runtime, "--no-healthcheck", "--ulimit", "nofile=20000:20000", "--ulimit", "nproc=4096:4096"]


@dataclass(frozen=True, kw_only=True)
class Container:
    """A running one, and what it was asked at first."""

    name: str
    port: int
    grpc_port: int
    first_score_seconds: float

    def inspect(self):
        return dict(json.loads(run("inspect", self.name))[0])


def started(*options):
    """A container that has given its first score; its only settings are its environment's."""
    port, grpc_port, name = free_port(), free_port(), f"turnscore-test-{free_port()}"
    own = {"TURNSCORE_HTTP__HOST": "127.0.0.1", "TURNSCORE_HTTP__PORT": str(port)}
    own |= {"TURNSCORE_GRPC__HOST": "127.0.0.1", "TURNSCORE_GRPC__PORT": str(grpc_port)}
    own["TURNSCORE_DRAIN_SECONDS"] = "3"
    variables = [word for each in own.items() for word in ("--env", "=".join(each))]
    tmpfs = "/tmp:rw,noexec,nosuid,nodev"  # as docker mounts it of itself, and podman does not
    confined = ["--read-only", "--tmpfs", tmpfs, "--cap-drop=all", "--security-opt", "no-new-privileges"]
    begun = time.monotonic()
    run("run", "--detach", "--name", name, "--network", "host", *flags(), *confined, *variables, *options, IMAGE)
    try:
        wait_until(lambda: _is_ready(port, name))
        with TurnScoreClient(f"http://127.0.0.1:{port}", timeout_seconds=60) as client:
            assert {"engagement", "quality", "sentiment_stop"} <= client.score(response="i like it").scores.keys()
    except BaseException:
        print(run("logs", name))
        run("rm", "--force", name)
        raise
    return Container(name=name, port=port, grpc_port=grpc_port, first_score_seconds=time.monotonic() - begun)


def _is_ready(port, name):
    assert run("inspect", "--format", "{{.State.Running}}", name) == "true", run("logs", name)
    try:
        return plain_http.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def container():
    running = started()
    yield running
    run("rm", "--force", running.name)


def test_all_starter_models_score_through_both_transports(container):
    print(f"first score {container.first_score_seconds:.1f} s after the start")
    with TurnScoreGrpcClient(f"127.0.0.1:{container.grpc_port}", timeout_seconds=60) as client:
        over_grpc = client.score(response="i like it", scorers=["engagement", "quality", "sentiment_stop", "fed"])
    with TurnScoreClient(f"http://127.0.0.1:{container.port}", timeout_seconds=60) as client:
        over_http = client.score(response="i like it", scorers=["engagement", "quality", "sentiment_stop", "fed"])
    assert {name: each.value for name, each in over_http.scores.items()} == {
        name: each.value for name, each in over_grpc.scores.items()
    }


def test_it_runs_as_a_user_of_a_number_and_writes_below_tmp_alone(container):
    user = run("image", "inspect", "--format", "{{.Config.User}}", IMAGE)
    assert user == "10001:10001"
    code = "import os, tempfile; print(os.getuid(), os.getpid()); open('/opt/venv/x', 'w')"
    done = subprocess.run([RUNNER, "exec", container.name, "python", "-c", code], capture_output=True, text=True)
    assert done.stdout.split()[0] == "10001"
    assert "Read-only file system" in done.stderr
    found = run("exec", container.name, "python", "-c", "import os; print(sorted(os.listdir('/tmp')))")
    assert "onnxruntime" not in found


def test_its_health_check_needs_no_shell_and_sees_the_service(container):
    described = json.loads(run("image", "inspect", IMAGE))[0]
    words = (described.get("Healthcheck") or described["Config"]["Healthcheck"])["Test"]  # podman's place, docker's
    assert words[0] == "CMD"
    run("exec", container.name, *words[1:])
    other = subprocess.run(
        [RUNNER, "exec", "--env", f"TURNSCORE_HTTP__PORT={free_port()}", container.name, *words[1:]],
        capture_output=True,
    )
    assert other.returncode != 0


def test_sigterm_drains_and_ends_well(container):
    run("kill", "--signal", "TERM", container.name)
    wait_until(lambda: plain_http.get(f"http://127.0.0.1:{container.port}/readyz").status_code == 503)
    assert run("wait", container.name) == "0"


def test_another_user_may_run_it_and_a_killed_service_is_a_container_that_ended():
    running = started("--user", "4711:0")
    try:
        pid = int(run("inspect", "--format", "{{.State.Pid}}", running.name))
        os.kill(pid, 9)
        assert run("wait", running.name) == "137"
    finally:
        run("rm", "--force", running.name)


def test_the_image_stays_small_and_says_what_it_is():
    described = json.loads(run("image", "inspect", IMAGE))[0]
    assert described["Size"] < MOST_BYTES
    labels = described["Config"]["Labels"]
    pyproject = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'version = "{labels["org.opencontainers.image.version"]}"' in pyproject
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
