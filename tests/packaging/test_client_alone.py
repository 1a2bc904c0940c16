"""The client by itself: its wheel, in an environment that holds nothing else, brings only what it needs."""

import json
import subprocess

import pytest
from support.environments import empty_environment, pip_install

pytestmark = pytest.mark.packaging

HEAVY = ["numpy", "torch", "transformers", "onnxruntime", "bentoml", "grpc", "fastapi", "turnscore_service"]

ROUND_TRIP = """
import importlib.util, json, sys
from turnscore_client import ScoreReply, ScoreRequest, TurnScoreClient, __version__
from turnscore_client.testing import MockTurnScore

request = ScoreRequest.model_validate({"context": [{"speaker": "user", "text": "hi"}], "response": "hello"})
with MockTurnScore({"engagement": 0.83}).client() as client:
    reply = client.score_batch([ScoreRequest.model_validate_json(request.model_dump_json())]).results[0]
print(json.dumps({
    "version": __version__,
    "value": ScoreReply.model_validate_json(reply.model_dump_json()).scores["engagement"].value,
    "found": [name for name in sys.argv[1:] if importlib.util.find_spec(name)],
}))
"""

LISTING = "import importlib.metadata as found; print(*(each.name for each in found.distributions()))"


def run(*command, cwd):
    return subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)


def succeed(*command, cwd):
    done = run(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("client-alone")


@pytest.fixture(scope="module")
def wheel(wheels):
    [built] = wheels.glob("turnscore_client-*.whl")
    return built


@pytest.fixture(scope="module")
def python(folder, wheel):
    """The interpreter of a fresh environment with the wheel and what it asks for."""
    interpreter = empty_environment(folder / "environment")
    done = pip_install(interpreter, wheel)
    assert done.returncode == 0, done.stdout + done.stderr
    return interpreter


def installed(python, folder):
    return succeed(python, "-I", "-c", LISTING, cwd=folder).split()


def test_a_turn_makes_the_round_trip_where_only_the_client_is_installed(python, wheel, folder):
    told = json.loads(succeed(python, "-I", "-c", ROUND_TRIP, *HEAVY, cwd=folder))
    assert told == {"version": wheel.name.split("-")[1], "value": 0.83, "found": []}


def test_it_brings_httpx_and_pydantic_and_no_more_than_they_need(python, folder):
    names = {name.lower().replace("_", "-") for name in installed(python, folder)}
    needed = {"httpx", "httpcore", "h11", "anyio", "idna", "certifi", "sniffio", "typing-extensions"}
    needed |= {"pydantic", "pydantic-core", "annotated-types", "typing-inspection"}
    assert names - needed == {"turnscore-client"}


def test_the_command_without_its_extra_says_what_to_install(python, folder):
    done = run(python.parent / "turnscore", "score", "dialogue.jsonl", cwd=folder)
    assert done.returncode == 2
    assert done.stderr == (
        "turnscore: the command line needs the extra `cli` of turnscore-client "
        "(in a checkout: pip install './clients[cli]')\n"
    )
