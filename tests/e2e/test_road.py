"""A tiny random BERT walks the whole road with the real commands: train, export, publish, pin, serve, score."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from support.exporter_data import save_tiny_bert, write_sentiment_data
from support.processes import running_service
from turnscore_client import TurnScoreClient
from turnscore_exporters.commands import export, train
from typer.testing import CliRunner

pytestmark = pytest.mark.e2e


def run(app: typer.Typer, *options: str | Path) -> None:
    """Here, where torch and transformers are imported already."""
    done = CliRunner().invoke(app, [str(each) for each in options])
    assert done.exit_code == 0, done.output


def test_a_checkpoint_is_trained_exported_published_and_served(tmp_path: Path):
    data, encoder = write_sentiment_data(tmp_path / "data"), save_tiny_bert(tmp_path / "bert")
    checkpoint, bundle, store = tmp_path / "checkpoint", tmp_path / "bundle", str(tmp_path / "store")
    trained = ["--data", data, "--output", checkpoint, "--encoder", encoder, "--token-limit", "48"]
    run(train, "sentiment-stop", *trained, "--frozen-layers", "0", "--steps", "2")
    exported = ["--checkpoint", checkpoint, "--version", "7.1.0", "--data", data, "--turns", "200"]
    run(export, "sentiment-stop", *exported, "--output", bundle, "--int8-tolerance", "0.5")
    words = [Path(sys.executable).parent / "turnscore", "models", "import", bundle]
    done = subprocess.run(words, env={**os.environ, "BENTOML_HOME": store}, capture_output=True, text=True, check=False)
    assert "stored sentiment_stop:7.1.0" in done.stdout, done.stdout + done.stderr

    environment = {"BENTOML_HOME": store, "TURNSCORE_MODELS": "sentiment_stop:7.1.0"}
    with (
        running_service(tmp_path / "run", environment=environment) as service,
        TurnScoreClient(service.url, timeout_seconds=60) as client,
    ):
        score = client.score(context=[("user", "hi")], response="hello").scores["sentiment_stop"]
    assert score.model == "sentiment_stop:7.1.0"
    assert score.details
