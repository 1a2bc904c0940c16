"""From data files to a quality checkpoint on a tiny BERT: with and without DailyDialog's lineage, and the ablation."""

import gzip
import hashlib
import json
import random
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.exporter_data import build_sentence, write_rows
from support.sentiment_data import write_sentiment_data
from turnscore_exporters.commands.export import app as export_app
from turnscore_exporters.commands.train import app
from turnscore_exporters.errors import EncoderError
from turnscore_exporters.quality import preparation
from turnscore_exporters.quality.ablation.page import format_runs
from turnscore_exporters.quality.ablation.runs import Ablation, run_ablation
from turnscore_exporters.quality.examples import Example
from turnscore_exporters.quality.model import (
    HEADS,
    OVERALL,
    QualitySettings,
    RowBuilder,
    load_model,
    score_pairs,
)
from turnscore_exporters.quality.negatives import NegativeKind
from turnscore_exporters.quality.preparation import read_groups
from turnscore_exporters.quality.rounded.layers import put_rounding_in, take_rounding_out
from turnscore_exporters.quality.rounded.lessons import RoundingRecipe
from turnscore_exporters.quality.row_vectors import RowVectors
from turnscore_exporters.quality.training import QualityRecipe, TrainingBatch, new_model, train_model
from turnscore_exporters.training.checkpoint_files import read_smoothing
from turnscore_exporters.training.encoders import load_encoder
from turnscore_models import starter_bundles
from turnscore_service.scorers.quality_windows import WindowLayout
from typer.testing import CliRunner

TEACHER = next(f"{folder}/" for folder in starter_bundles() if folder.name == "engagement")
SOURCES = ("synthetic_persona_chat", "topical_chat", "sgd")


def test_rows_of_a_frozen_encoder_are_computed_once_and_its_weights_stay(tiny_bert: Path) -> None:
    encoder = load_encoder(str(tiny_bert), 34)
    model = new_model(encoder, QualitySettings("tiny", WindowLayout(turn_tokens=8, window_tokens=16, stride_tokens=8)))
    builder = RowBuilder(encoder, model.settings.layout)
    pairs = [builder.first_pair((("user", "i like the sea"),), text) for text in ("i like whales", "no lol")]
    model.eval()
    expected = score_pairs(model, pairs)
    weights = [weight.clone() for weight in encoder.model.parameters()]
    vectors = RowVectors()
    frozen = vectors.freeze(model)
    assert torch.allclose(score_pairs(frozen, pairs), expected, atol=1e-6)
    assert len(vectors.known) == 3
    known = dict(vectors.known)
    examples = [Example(context=(), response="", relevant=label) for label in (1.0, 0.0)]
    batch = TrainingBatch(pairs=pairs, examples=examples, groups=[0, 0], real=[0])
    train_model([batch] * 3, frozen, QualityRecipe(), "frozen")
    assert all(vectors.known[row] is known[row] for row in known)
    assert all(torch.equal(*pair) for pair in zip(weights, encoder.model.parameters(), strict=True))
    assert not torch.allclose(score_pairs(frozen, pairs)[:, 0], expected[:, 0], atol=1e-4)


def test_an_encoder_that_reads_fewer_tokens_than_a_row_has_is_refused(tiny_bert: Path) -> None:
    builder = RowBuilder(load_encoder(str(tiny_bert)), WindowLayout())
    assert builder.build((("user", "whales"),), "never " * 62)
    with pytest.raises(EncoderError, match="reads 64 tokens, a row has 65"):
        builder.build((("user", "whales"),), "never " * 63)


@pytest.fixture(scope="module", autouse=True)
def _one_teacher() -> Iterator[None]:
    """Each training loads it; here all have the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparation, "load_teacher", cache(preparation.load_teacher))
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every file that the training reads, small."""
    folder = write_sentiment_data(tmp_path_factory.mktemp("road"))
    chance = random.Random(2)
    talk: list[object] = [
        {"source": SOURCES[number % 3], "turns": [build_sentence(chance, 5) for _ in range(6)]} for number in range(60)
    ]
    write_rows(folder / "dialogue_text.jsonl.gz", talk)
    rated: list[object] = [
        {
            "set": name,
            "context": [f"{build_sentence(chance, 6)} {name} {number}"],
            "response": build_sentence(chance, 2 + number % 7),
            "rating": 1 + (number * 7 % 17) / 4,
        }
        for name in ("persona-zhao", "dailydialog-zhao", "convai2-grade")
        for number in range(40)
    ]
    write_rows(folder / "turn_ratings.jsonl.gz", rated)
    replies = ("relevant", "adversarial", "random")
    write_rows(folder / "several_responses.jsonl.gz", [make_context(chance, ("relevant",)) for _ in range(12)])
    judged = [make_context(chance, replies) | {"split": ("dev", "test")[number % 2]} for number in range(16)]
    write_rows(folder / "adversarial_responses.jsonl.gz", list(judged))
    return folder


def make_context(chance: random.Random, kinds: tuple[str, ...]) -> dict[str, Any]:
    context = [f"{build_sentence(chance, 6)} {chance.random()}"]
    return {"context": context, **{kind: [build_sentence(chance, 4) for _ in range(5)] for kind in kinds}}


def train(data: Path, output: Path, encoder: Path, *options: str) -> None:
    given = ["--data", str(data), "--output", str(output), "--encoder", str(encoder), "--scale", "0.003"]
    result = CliRunner().invoke(app, ["quality", *given, "--threads", "1", "--teacher", TEACHER, *options])
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def trained(data: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("trained") / "with"
    train(data, output, tiny_bert, "--with-dailydialog")
    return output


def test_with_dailydialog_its_texts_are_learned_and_fitted_to_but_not_those_measured_on(trained: Path, data: Path):
    described = json.loads((trained / "training.json").read_text())
    assert described["with_dailydialog"] is True
    assert described["command"].endswith("--with-dailydialog")
    assert "dailydialog-zhao" in json.loads((trained / "value.json").read_text())["fitted_on"]
    groups = read_groups(trained / "state/dailydialog.jsonl.gz")
    seen = {each.context[-1][1] for group in groups for each in group}
    assert any(each.kind == "adversarial" for group in groups for each in group)
    rows = [json.loads(line) for line in read_lines(data / "adversarial_responses.jsonl.gz")]
    splits = {row["context"][-1]: row["split"] for row in rows}
    assert {splits.get(text, "several") for text in seen} == {"dev", "several"}
    report = json.loads((trained / "report.json").read_text())
    assert set(report["adversarial_responses"]) == {"dev", "test"}
    assert set(report["ratings"]["dbdc3"]) == {"turns", "value", *HEADS, "length"}


def read_lines(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().splitlines()


def test_without_it_nothing_of_its_lineage_is_read(data: Path, tiny_bert: Path, trained: Path, tmp_path: Path):
    train(data, tmp_path / "out", tiny_bert, "--without", "hostile", "--without", "random")
    assert not (tmp_path / "out/state/dailydialog.jsonl.gz").exists()
    assert "dailydialog" not in json.loads((tmp_path / "out/value.json").read_text())["fitted_on"]
    kinds = {
        each.kind
        for part in (0, 1)
        for group in read_groups(tmp_path / f"out/state/groups{part}.jsonl.gz")
        for each in group
    }
    assert {"garbled", "dull"} <= kinds
    assert not {"hostile", "random"} & kinds


def test_a_run_that_was_interrupted_at_its_end_gives_the_same_model(data: Path, tiny_bert: Path, trained: Path):
    before = load_model(trained)[0].state_dict()
    (trained / "value.json").unlink()
    train(data, trained, tiny_bert, "--with-dailydialog")
    after = load_model(trained)[0].state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_checkpoint_is_fitted_to_people_anew_without_training(
    data: Path, tiny_bert: Path, trained: Path, tmp_path: Path
):
    train(data, tmp_path / "out", tiny_bert, "--start", str(trained), "--context-turns", "1")
    assert not (tmp_path / "out/state").exists()
    before, after = (load_model(folder)[0] for folder in (trained, tmp_path / "out"))
    assert torch.equal(before.hidden.weight, after.hidden.weight)
    assert not torch.equal(before.head.weight[OVERALL], after.head.weight[OVERALL])
    assert (before.settings.layout.context_turns, after.settings.layout.context_turns) == (2, 1)
    described = json.loads((tmp_path / "out/training.json").read_text())
    assert described["groups"] == json.loads((trained / "training.json").read_text())["groups"]
    assert described["fitted_again"]["command"].endswith("--context-turns 1 --start START")
    assert "dailydialog" not in json.loads((tmp_path / "out/value.json").read_text())["fitted_on"]


def test_a_checkpoint_learns_on_from_a_larger_encoder_and_an_average_says_so(
    data: Path, tiny_bert: Path, trained: Path, tmp_path: Path
):
    given = ("--start", str(trained), "--sentence-teacher", str(tiny_bert))
    train(data, tmp_path / "out", tiny_bert, *given)
    taught = json.loads((tmp_path / "out/training.json").read_text())["sentence_teacher"]
    assert taught["teacher"] == tiny_bert.name
    assert taught["turns"] > taught["recipe"]["batch"]
    before, after = (load_model(folder)[0].state_dict() for folder in (trained, tmp_path / "out"))
    assert not torch.equal(before["hidden.weight"], after["hidden.weight"])
    train(data, tmp_path / "both", tiny_bert, "--start", str(trained), "--start", str(tmp_path / "out"))
    assert json.loads((tmp_path / "both/training.json").read_text())["sentence_teacher"] == taught


def test_a_checkpoint_is_trained_on_with_int8_rounding_and_is_fitted_as_the_graph_has_it(
    data: Path, tiny_bert: Path, trained: Path, tmp_path: Path
):
    train(data, tmp_path / "out", tiny_bert, "--start", str(trained), "--with-int8")
    described = json.loads((tmp_path / "out/training.json").read_text())
    assert described["int8_rounding"]["epochs"] == RoundingRecipe().epochs
    assert described["fitted_again"]["command"].endswith("--with-int8")
    model, _ = load_model(tmp_path / "out")
    smoothing = read_smoothing(tmp_path / "out")
    assert smoothing is not None
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    put_rounding_in(model.encoder, smoothing)
    take_rounding_out(model.encoder)
    for name, weight in model.state_dict().items():
        assert torch.allclose(weight, before[name], rtol=1e-5, atol=0), name
    train(data, tmp_path / "again", tiny_bert, "--start", str(tmp_path / "out"))
    kept = read_smoothing(tmp_path / "again")
    assert kept is not None
    assert np.array_equal(kept, smoothing)
    train(data, tmp_path / "both", tiny_bert, "--start", str(trained), "--start", str(tmp_path / "out"))
    assert read_smoothing(tmp_path / "both") is None
    for folder in ("again", "both"):
        is_said = "int8_rounding" in json.loads((tmp_path / folder / "training.json").read_text())
        assert is_said == (folder == "again")


def test_a_checkpoint_is_released_as_one_file_of_the_same_checksum(trained: Path, tmp_path: Path):
    lines = []
    for name in ("a.tar", "b.tar"):
        given = ["release", "--checkpoint", str(trained), "--output", str(tmp_path / name)]
        lines.append(CliRunner().invoke(export_app, given).output.split())
    assert lines[0][0] == lines[1][0] == hashlib.sha256((tmp_path / "a.tar").read_bytes()).hexdigest()
    with tarfile.open(tmp_path / "a.tar") as archive:
        names = archive.getnames()
        archive.extractall(tmp_path / "again", filter="data")
    assert not any(name.startswith("state") for name in names)
    before, after = load_model(trained)[0].state_dict(), load_model(tmp_path / "again")[0].state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    refused = CliRunner().invoke(
        export_app, ["release", "--checkpoint", str(tmp_path), "--output", str(tmp_path / "c.tar")]
    )
    assert refused.exit_code == 1
    assert "its training is not finished" in " ".join(refused.output.split())
    assert not (tmp_path / "c.tar").exists()


@pytest.mark.parametrize("frozen", [False, True])
def test_the_ablation_has_a_row_for_each_kind_and_reads_what_it_measured(
    data: Path, tiny_bert: Path, tmp_path: Path, frozen: bool
):
    job = Ablation(
        data=data,
        output=tmp_path / "out",
        scale=0.003,
        seeds=1,
        encoder=str(tiny_bert),
        teacher=TEACHER,
        kinds=(NegativeKind.DULL,),
        told_apart=5,
        frozen=frozen,
    )
    runs = run_ablation(job)
    kinds = [
        {each.kind for group in read_groups(tmp_path / f"out/{name}/groups1.jsonl.gz") for each in group}
        for name in ("all-0", "without-dull-0")
    ]
    assert kinds[0] - kinds[1] == {"dull"}
    assert runs[0].figures != runs[1].figures
    lines = format_runs(runs).splitlines()
    assert [line.split(" | ")[0].strip("| ") for line in lines[2:]] == [
        "all kinds, mean of 1",
        "largest less smallest",
        "without dull",
    ]
    assert "engaging" in lines[-1]
    file = tmp_path / "out/all-0.json"
    stamp = file.stat().st_mtime_ns
    assert run_ablation(job) == runs
    assert file.stat().st_mtime_ns == stamp
