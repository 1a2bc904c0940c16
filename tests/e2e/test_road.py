"""A tiny random BERT walks the whole road with the real commands: train, export, publish, pin, serve, score."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.exporter_data import save_tiny_bert
from support.processes import running_service
from support.sentiment_data import write_sentiment_data
from turnscore_client import TurnScoreClient

pytestmark = pytest.mark.e2e

SCRIPTS = Path(sys.executable).parent


def test_a_checkpoint_is_trained_exported_published_and_served(tmp_path: Path):
    data, encoder = write_sentiment_data(tmp_path / "data"), save_tiny_bert(tmp_path / "bert")
    home = {**os.environ, "BENTOML_HOME": str(tmp_path / "store"), "BENTOML_DO_NOT_TRACK": "True"}

    def run(command: str, *options: str | Path) -> str:
        words = [str(SCRIPTS / command), *map(str, options)]
        done = subprocess.run(words, env=home, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    checkpoint, bundle = tmp_path / "checkpoint", tmp_path / "bundle"
    trained = ["--data", data, "--output", checkpoint, "--encoder", encoder, "--token-limit", "48"]
    run("turnscore-train", "sentiment-stop", *trained, "--frozen-layers", "0", "--steps", "2")
    exported = ["--checkpoint", checkpoint, "--version", "7.1.0", "--data", data, "--turns", "200"]
    run("turnscore-export", "sentiment-stop", *exported, "--output", bundle, "--int8-tolerance", "0.5")
    assert "stored sentiment_stop:7.1.0" in run("turnscore-models", "import", bundle)

    environment = {"BENTOML_HOME": str(tmp_path / "store"), "TURNSCORE_MODELS": "sentiment_stop:7.1.0"}
    with (
        running_service(tmp_path / "run", environment=environment) as service,
        TurnScoreClient(service.url, timeout_seconds=60) as client,
    ):
        score = client.score(context=[("user", "hi")], response="hello").scores["sentiment_stop"]
    assert score.model == "sentiment_stop:7.1.0"
    assert score.details
