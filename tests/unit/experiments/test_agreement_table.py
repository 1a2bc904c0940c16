"""The page on every development set, from small made-up sets and scorers that know the ratings."""

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import agreement_table
import pytest
from agreement_table import app
from click.testing import Result
from support.exporter_data import OracleScorer, write_rows
from support.fakes import loaded_fake
from turnscore_core.scorers.scorer import RawScore, TokenPack
from typer.testing import CliRunner

SYSTEMS = ("good", "middling", "poor")
VOTES = 30


class RelevanceOracle(OracleScorer):
    """Calls a response relevant by the number it ends with."""

    KIND: ClassVar[str] = "quality"

    def score(self, batch: Sequence[TokenPack]) -> list[RawScore]:
        return [RawScore(row[0] / 100, {"relevant": row[0] / 100}) for pack in batch for row in pack.rows]


class WrongWay(OracleScorer):
    """The worse the response, the higher."""

    def score(self, batch: Sequence[TokenPack]) -> list[RawScore]:
        return [RawScore(-row[0] / 100) for pack in batch for row in pack.rows]


def dbdc3_row(number: int) -> dict[str, Any]:
    """Four judged turns whose texts end with the votes for them; the good system's are the highest."""
    generator, place = random.Random(number), number % 3
    turns: list[dict[str, Any]] = []
    for _ in range(4):
        liked = generator.randrange(9) + 10 * (2 - place)
        votes = {"O": liked, "T": 0, "X": VOTES - liked}
        turns.append({"speaker": "user", "text": "and?"})
        turns.append(
            {"speaker": "system", "text": f"{'word ' * generator.randrange(1, 6)}{liked}", "breakdown_votes": votes}
        )
    return {"id": f"d{number}", "system": SYSTEMS[place], "turns": turns}


def rated_row(number: int) -> dict[str, Any]:
    context = [f"this is what was said before turn number {number}"]
    return {"set": "made-up", "context": context, "response": f"{'a ' * (number % 5)}{number}", "rating": number / 10}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_rows(tmp_path / "dbdc3_dev.jsonl.gz", [dbdc3_row(number) for number in range(12)])
    write_rows(tmp_path / "turn_ratings.jsonl.gz", [rated_row(number) for number in range(40)])
    responses = {"relevant": ["it fits 90", "so so 40"], "random": ["no 10"], "adversarial": ["nearly 60", "no 5"]}
    adversarial = [{"split": "dev", "context": [f"what {number}"], **responses} for number in range(6)]
    write_rows(tmp_path / "adversarial_responses.jsonl.gz", adversarial)
    return tmp_path


def run(data: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    loaded = {
        "quality": loaded_fake(RelevanceOracle(), "quality"),
        "engagement": loaded_fake(OracleScorer(), "engagement"),
        "sentiment_stop": loaded_fake(WrongWay(), "sentiment_stop"),
        "fed": loaded_fake(OracleScorer(), "fed"),
    }
    monkeypatch.setattr(agreement_table, "load_bundles", lambda references: {name: loaded[name] for name in references})
    output = ["--output", str(data / "table.json"), "--page", str(data / "page.md")]
    bundles = [word for name in loaded for word in ("--bundle", name)]
    return CliRunner().invoke(app, [str(data), *output, "--bootstrap", "20", *bundles])


def section(page: str, title: str) -> dict[str, list[str]]:
    """The rows of the tables below a title, by their first cell; later tables win."""
    [text] = re.findall(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.splitlines() if line[:1] == "|"]
    return {row[0]: row[1:] for row in rows}


def test_every_scorer_detail_sum_and_baseline_stands_in_every_set_and_puts_systems_in_order(data, monkeypatch):
    result = run(data, monkeypatch)
    assert result.exit_code == 0, result.output
    page = (data / "page.md").read_text()
    summary = section(page, "All sets")
    assert list(summary)[2:] == [
        "quality", "quality: relevant", "engagement", "engagement: earlier", "engagement: worse", "sentiment_stop",
        "fed", "engagement + sentiment_stop", "mean of percentiles: engagement, sentiment_stop",
        "mean of percentiles: quality, engagement, sentiment_stop", "length in characters", "position in the dialogue",
        "system turns in the dialogue",
    ]  # fmt: skip
    assert sorted(summary["score"][:2]) == ["made-up (chosen on)", "made-up (fitted on)"]
    assert summary["score"][2:] == ["dbdc3", "dbdc3 dialogues", "mean"]
    assert summary["quality"] == ["1.000"] * 5
    assert summary["sentiment_stop"] == ["-1.000"] * 5
    assert summary["engagement: worse"] == ["-1.000"] * 5
    assert section(page, "dbdc3")["engagement"] == ["1.000"] * 3  # Fewer than six dialogues give no interval.
    rows = section(page, "The 3 systems of dbdc3 dialogues")
    assert "best first: good > middling > poor." in page
    assert rows["quality"][2] == "good > middling > poor"
    assert rows["sentiment_stop"][1:] == ["-1.000 [-1.000, -1.000]", "poor > middling > good"]
