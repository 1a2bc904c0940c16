"""`turnscore train criterion` on the starter bundle of quality: what can be learned is, and what cannot is refused."""

import hashlib
import json
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from support.exporter_data import write_rows
from turnscore_assessment.data.dialogues import LabelledTurn, Population
from turnscore_assessment.errors import BadFileError
from turnscore_core.dialogues import Dialogue
from turnscore_core.engine import Engine
from turnscore_core.loaded_scorer import choose_variant, load_scorer
from turnscore_core.scorers.criterion import CriterionScorer
from turnscore_core.scorers.quality import QualityScorer, SplitEncoder
from turnscore_core.scoring import score_turns
from turnscore_exporters.criterion import deep, training
from turnscore_exporters.criterion.judgements import HELD_OUT, TRAIN, FeatureReader, Judgements, read_judgements
from turnscore_exporters.criterion.learning import CurvePoint, HeldOut, extrapolate, fit_head, solve_ridge
from turnscore_exporters.criterion.training import train_criterion
from turnscore_exporters.errors import CheckpointError, ExporterError
from turnscore_exporters.options import CriterionTrainOptions
from turnscore_exporters.quality.dequantize import read_joint_layers
from turnscore_exporters.training.loop import choose_batch
from turnscore_models.bundle import read_bundle, starter_bundles, write_bundle
from turnscore_models.manifest import MismatchedGraphError
from turnscore_wire import Turn

KIND = ("Thank you so much for asking,", "Of course, I am happy to help you:", "Please take your time, dear friend,")
RUDE = ("What a stupid question,", "Stop bothering me, you fool:", "I do not care about you,")
TOPICS = ("the garden shears", "your order", "the rain today", "this old film", "my lawn mower", "the train to Rome")
ASKED = ("Can you tell me about {}?", "What do you think of {}?", "I have a problem with {}.")
ENDS = ("it is in the shop.", "we can look at it tomorrow.", "there are seven of them.", "ask again on Monday.")

[QUALITY] = [each for each in starter_bundles() if each.name == "quality"]
RUBRIC = "# Rubric\n\n## kind (1 to 5)\n\nHow kind the response is.\n"


def judged_rows(count=200):
    generator = random.Random(0)
    for number in range(count):
        topic, is_kind = generator.choice(TOPICS), generator.random() < 0.5
        words = [generator.choice(KIND if is_kind else RUDE), topic, generator.choice(ENDS)]
        extra = generator.randrange(3)
        text = " ".join([*words, *[f"Yes, {generator.choice(TOPICS)} too."] * extra])
        marks = {"kind": generator.choice([4.0, 5.0] if is_kind else [1.0, 2.0])}
        marks |= {"chance": float(generator.random() < 0.5), "long": min(5.0, len(text.split()) / 5), "always": 1.0}
        yield {
            "set": "made up", "dialogue": f"d{number // 2}",
            "context": [{"speaker": "user", "text": generator.choice(ASKED).format(topic)}],
            "responses": [{"text": text, "judges": 1, **marks}],
            "rubric": f"sha256:{hashlib.sha256(RUBRIC.encode()).hexdigest()}", "models": ["judge-1"],
            "scales": {"kind": [1, 5], "chance": [0, 1], "long": [1, 5], "always": [0, 1]},
        }  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where criteria are trained, so that features are computed once."""
    folder = tmp_path_factory.mktemp("criteria")
    write_rows(folder / "rows.jsonl.gz", list(judged_rows()))
    return folder


def options_of(folder, name, **given):
    own = {"encoder": f"{QUALITY}/", "files": [folder / "rows.jsonl.gz"], "output": folder / name}
    return CriterionTrainOptions(name=name, **{**own, **given})


@pytest.fixture(scope="module")
def made(folder):
    lines = list(train_criterion(options_of(folder, "kind")))
    return read_bundle(folder / "kind"), lines


@pytest.fixture(scope="module")
def served(made):
    return load_scorer(made[0], choose_variant(made[0]))


def values_of(served, turns):
    return np.array([each.value for each in score_turns(served, [t.to_score() for t in turns])])


SAID = [
    LabelledTurn(context=(("user", "Where is it?"),), response=response)
    for response in ("Of course, my friend, it is on its way.", "Stupid fool, who cares about it.")
]


def test_a_learned_criterion_is_served_and_tells_unseen_responses_apart(served):
    kind, rude = values_of(served, SAID)
    assert kind > 0.7
    assert rude < 0.3
    bundle = served.bundle
    assert served.kind == "kind"
    assert bundle.manifest.options["scale"] == [1.0, 5.0]
    assert sum((bundle.folder / name).stat().st_size for name in bundle.own_files) < 300_000


PROMISES = [
    (80, 70, "at most 5% of good responses are .* at most 5% of bad ones"),
    (80, 20, "at most 5% of good responses are .* at most 14% of bad ones"),
    (80, 5, "no label: 80 good and 5 bad responses are held out"),
]


@pytest.mark.parametrize(("good", "bad", "said"), PROMISES)
def test_labels_promise_what_the_held_out_turns_allow(good, bad, said):
    judged = held_out([1.0] * good + [0.0] * bad + [0.5] * 30)
    values = judged.wanted + np.random.default_rng(0).normal(0, 0.5, len(judged.turns))
    made = training.make_thresholds(values, judged, 0.05)
    assert re.match(f".*{said}", training.describe_thresholds(made, judged))
    assert bool(made) == (bad > 5)
    if made:
        assert (values[judged.wanted == 1] < made["threshold"].value).mean() <= 0.05
        assert (values[judged.wanted == 0] >= made["good_threshold"].value).mean() <= 0.14


def test_a_data_folder_gives_the_percentiles_and_a_rubric_the_words(folder, monkeypatch):
    kind = [LabelledTurn(context=(("user", "Hello."),), response=f"Of course, my friend {n}.") for n in range(40)]
    monkeypatch.setattr(training, "read_population", lambda _: Population(kind, frozenset()))
    (folder / "rubric.md").write_text(RUBRIC)
    given = {"name": "kinder", "mark": "kind", "data": folder, "rubric": folder / "rubric.md"}
    list(train_criterion(replace(options_of(folder, "kinder"), **given)))
    bundle = read_bundle(folder / "kinder")
    assert bundle.manifest.options["description"] == "How kind the response is."
    assert "How kind the response is." in bundle.path_of("card.md").read_text(encoding="utf-8")
    calibration = bundle.calibration()
    assert calibration.turns == 40
    assert calibration.percentiles[1] > 0.7


def test_the_card_and_the_manifest_say_what_was_measured(made):
    bundle, lines = made
    card = bundle.path_of("card.md").read_text(encoding="utf-8")
    report = bundle.manifest.agreement["report"]
    assert report["agreement"]["low"] > 0.5 > report["baselines"]["length"]["high"]
    assert bundle.manifest.training["judges"] == ["judge-1"]
    shown = (f"| kind | {report['agreement']['value']:.3f} [", "judge-1", bundle.calibration().source)
    assert [each for each in shown if each not in card] == []
    assert any("TF-IDF" in line for line in lines)


UNLEARNED = [
    ("chance", r"AUC on held-out dialogues is 0\.\d+ \[.*which may be chance \(0\.5\)"),
    ("long", "which may be no better than the response's length"),
    ("always", r"0 responses with another mark than the commonest to train on, and at least 15 are needed"),
]


@pytest.mark.parametrize(("name", "reason"), UNLEARNED)
def test_what_is_not_learned_is_refused_and_features_are_not_computed_again(folder, made, name, reason, monkeypatch):
    monkeypatch.setattr(QualityScorer, "compute_features", None)
    with pytest.raises(ExporterError, match=reason):
        list(train_criterion(options_of(folder, name)))
    assert not (folder / name).exists()


def test_too_few_rows_are_refused_before_any_feature_is_computed(tmp_path):
    write_rows(tmp_path / "rows.jsonl.gz", list(judged_rows(100)))
    with pytest.raises(ExporterError, match=r"judged responses to train on, and at least 100 are needed; 1\d\d rows"):
        list(train_criterion(options_of(tmp_path, "kind")))
    assert not (tmp_path / "features").exists()


WRONG_OPTIONS = [
    ({"name": "quality"}, "the name of another scorer"),
    ({"name": "criterion"}, "the name of another scorer"),
    ({"name": "On brand"}, "is not a name"),
    ({"version": "1"}, "is not a version"),
    ({"name": "polite"}, "no response has the mark 'polite'; there are always, chance, kind, long"),
    ({"scale": "5,1"}, "--scale is '5,1'"),
    ({"scale": "1,4"}, "kind of a response is 5, and the scale 1 to 4"),
]


@pytest.mark.parametrize(("given", "reason"), WRONG_OPTIONS)
def test_wrong_options_are_refused(folder, given, reason):
    with pytest.raises((ExporterError, BadFileError), match=reason):
        list(train_criterion(replace(options_of(folder, "kind", output=folder / "new"), **given)))


def test_another_rubric_than_the_rows_is_refused(folder, tmp_path):
    (tmp_path / "rubric.md").write_text("# Rubric\n\n## kind (1 to 5)\n\n- 5: kind\n- 1: rude\n")
    with pytest.raises(ExporterError, match="not all rows were judged for kind by this rubric"):
        list(train_criterion(options_of(folder, "kind", output=folder / "new", rubric=tmp_path / "rubric.md")))


TINY = deep.DeepRecipe(epochs=1, batch=6, looks=1)


@pytest.fixture(scope="module")
def deepened(folder, made):
    """A bundle of --deep, whose training was interrupted once."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(deep, "RECIPE", TINY)

        def stop(items, batch, step):
            if step == 12:
                raise KeyboardInterrupt
            return choose_batch(items, batch, step)

        given = options_of(folder, "kind", output=folder / "deep", keep_deep=True)
        patched.setattr(deep, "choose_batch", stop)
        with pytest.raises(KeyboardInterrupt):
            list(train_criterion(given))
        assert not (folder / "deep").exists()
        steps = []

        def note(items, batch, step):
            steps.append(step)
            return choose_batch(items, batch, step)

        patched.setattr(deep, "choose_batch", note)
        lines = list(train_criterion(given))
        assert steps[0] == 10
        yield read_bundle(folder / "deep"), lines


def test_deep_layers_are_served_and_share_what_reads_each_text(deepened, served):
    bundle, lines = deepened
    assert re.search(r"--deep: Spearman 0\.\d.*without it .*it is kept, and takes a pass of its own", "\n".join(lines))
    assert sorted(bundle.manifest.shared.files) == ["graphs/cpu-int8.onnx", "tokenizer.json"]
    assert sum((bundle.folder / name).stat().st_size for name in bundle.own_files) < 5_000_000
    assert 0 < bundle.manifest.graphs["cpu-int8"].parity_measured["max_abs"] < 0.1
    loaded = load_scorer(bundle, "cpu-int8")
    assert loaded.pass_key != served.pass_key
    assert loaded.first_graph_digest == served.first_graph_digest
    kind, rude = values_of(loaded, SAID)
    assert rude < 0.3 < 0.7 < kind
    card = bundle.path_of("card.md").read_text(encoding="utf-8")
    assert "| without --deep | 0." in card
    assert "takes a pass of its own" in card
    assert 100 < bundle.calibration().turns < 300
    assert f"{bundle.calibration().turns} judged responses that --deep was not trained on" in card


def test_a_deep_criterion_scores_alike_with_quality_and_reads_no_text_twice(deepened, monkeypatch):
    rows = []
    compute = SplitEncoder._compute

    def note(own, asked):
        rows.extend(asked)
        return compute(own, asked)

    monkeypatch.setattr(SplitEncoder, "_compute", note)
    turns = [Turn(speaker=("user", "system")[n % 2], text=f"It is {n} o'clock, my friend.") for n in range(6)]

    def values(*bundles):
        with Engine(bundles) as engine:
            rows.clear()
            [found] = engine.score([Dialogue("a", turns)])
        return {name: [turn.scores[name].value for turn in found.turns] for name in found.turns[0].scores}

    together = values(QUALITY, deepened[0].folder)
    assert len(rows) == len(set(rows)) == 6
    assert together == values(QUALITY) | values(deepened[0].folder)


def test_what_is_not_better_is_not_kept_and_nothing_is_trained_again(deepened, made, folder, monkeypatch):
    monkeypatch.setattr(deep, "RECIPE", TINY)
    monkeypatch.setattr(deep, "choose_batch", None)
    lines = list(train_criterion(options_of(folder, "kind", output=folder / "shallow", deep=True)))
    assert any("which may be none; what is kept is without it (--keep-deep keeps it)" in line for line in lines)
    bundle = read_bundle(folder / "shallow")
    assert "graphs/cpu-int8-joint.onnx" not in bundle.own_files
    assert bundle.manifest.heads == made[0].manifest.heads
    assert "--deep: Spearman" in bundle.path_of("card.md").read_text(encoding="utf-8")


def deep_features(features, joint_file=Path()):
    none = {"is_left_out": np.zeros(0, bool), "unrounded": np.zeros((0, 4))}
    return deep.DeepFeatures(joint_file=joint_file, features=features, **none)


def test_deep_is_kept_where_held_out_dialogues_show_that_it_is_better():
    generator = np.random.default_rng(0)
    wanted = generator.random(400)
    turns = []
    for place, mark in enumerate(wanted.tolist()):
        said = " ".join(generator.choice(["aa", "bb", "cc", "dd"], 5))
        own = {"dialogue": f"d{place // 4}", "split": TRAIN if place < 200 else HELD_OUT, "labels": {"mark": mark}}
        turns.append(LabelledTurn(context=(), response=said, **own))
    judged, noise = Judgements(turns), generator.normal(0, 1, (400, 4)).astype(np.float32)
    features = noise + wanted[:, None].astype(np.float32)
    shallow = training.learn(judged, features, generator.normal(0, 1, (400, 6)))
    better = np.column_stack([features, wanted + generator.normal(0, 0.1, 400)]).astype(np.float32)
    left_out = deep.choose_left_out(judged.dialogue_of[:200], wanted[:200], 5)
    with pytest.raises(ExporterError, match="the marks differ within too few dialogues"):
        deep.choose_left_out(judged.dialogue_of[:200], (judged.dialogue_of[:200] == 0) * 1.0, 5)
    assert {int(each) for each in judged.dialogue_of[:200][left_out]}.isdisjoint(judged.dialogue_of[:200][~left_out])
    for found, is_kept in ((better, True), (features, False)):
        made = replace(deep_features(found), is_left_out=left_out)
        chosen = training.choose_deep(judged, shallow, made, always=False)
        assert (chosen.deep is made) == is_kept
        assert (chosen.agreement.value > shallow.agreement.value) == is_kept
    assert training.choose_deep(judged, shallow, made, always=True).deep is made


def test_the_layers_of_another_graph_are_not_read():
    with pytest.raises(CheckpointError, match=r"cpu-int8.onnx: is not the second int8 graph of an encoder"):
        read_joint_layers(QUALITY / "graphs/cpu-int8.onnx")


def test_deep_features_of_other_turns_are_those_that_are_served(deepened, reader):
    turns = [
        LabelledTurn(context=(("user", "Hello."),), response=f"Of course, my friend {n}." * n) for n in range(1, 15)
    ]
    bundle = deepened[0]
    made = deep_features(np.zeros((0, 4), np.float32), bundle.path_of("graphs/cpu-int8-joint.onnx"))
    loaded = load_scorer(bundle, "cpu-int8")
    scorer = cast("CriterionScorer", loaded.scorer)
    values = [each.value for each in scorer.read_features([], deep.read_deep(reader.loaded, made, turns))]
    assert values == values_of(loaded, turns).tolist()


@pytest.fixture(scope="module")
def reader(folder):
    return FeatureReader(read_bundle(QUALITY), folder / "features")


def test_deep_needs_an_int8_encoder(served):
    manifest = served.bundle.manifest
    as_fp32 = manifest.model_copy(update={"graphs": {"fp32": manifest.graphs["cpu-int8"]}})
    with pytest.raises(ExporterError, match="--deep needs graph cpu-int8"):
        deep.ReadTurns(replace(served, variant="fp32", bundle=replace(served.bundle, manifest=as_fp32)), [])


def test_a_deep_head_is_bound_to_its_own_layers(deepened, tmp_path):
    bundle = deepened[0]
    shutil.copytree(bundle.folder, tmp_path / "kind")
    shutil.copy(QUALITY / "graphs/cpu-int8-joint.onnx", tmp_path / "kind/graphs")
    with pytest.raises(MismatchedGraphError, match=r"kind:1.0.0: the heads 'criterion' .* are bound to the encoder"):
        write_bundle(tmp_path / "kind", bundle.manifest, bundle.lenders)


def test_marks_of_a_stand_in_are_not_learned_from_and_scales_are_guessed(tmp_path):
    rows = list(judged_rows(4))
    for row in rows:
        del row["scales"]
    rows[0]["responses"][0] |= {"judges": 0, "people": {"long": 2}}
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    found = read_judgements([path], "long")
    assert len(found.turns) == 3
    assert found.is_scale_guessed
    assert found.scale == (1.0, 5.0)
    assert [turn.labels["mark"] for turn in read_judgements([path], "people.long").turns] == [0.25]


def test_judges_are_those_of_the_mark_and_a_scale_of_one_number_is_refused(tmp_path):
    rows = list(judged_rows(4))
    rows[0]["responses"][0] |= {"people": {"kind": 2}, "marks": {"a": {"kind": 4}, "b": {"long": 2}}}
    rows[0]["models"] = ["a", "b", "stand-in"]
    for row in rows[1:]:
        del row["responses"][0]["kind"]
        row |= {"models": ["c"], "rubric": "another", "scales": {"kind": [3, 3]}}
    del rows[2]["scales"]
    path = write_rows(tmp_path / "two.jsonl.gz", rows[:1] + rows[2:3])
    assert read_judgements([path], "kind").judges == {"a"}
    assert read_judgements([path], "people.kind").judges == {"people"}
    del rows[0]["scales"]
    path = write_rows(tmp_path / "one.jsonl.gz", rows[:2])
    with pytest.raises(ExporterError, match="the scale of kind is 3 to 3 in the rows; give the right one by --scale"):
        read_judgements([path], "kind")


def held_out(marks, sharing=1):
    turn = LabelledTurn(context=(), response="x", split=HELD_OUT)
    return Judgements(
        [replace(turn, dialogue=f"d{n // sharing}", labels={"mark": mark}) for n, mark in enumerate(marks)]
    )


def test_a_promise_over_turns_of_the_same_dialogues_is_called_weaker():
    marks = [1.0] * 80 + [0.0] * 70
    values = np.array(marks) + np.random.default_rng(0).normal(0, 0.5, len(marks))
    judged = [held_out(marks, sharing) for sharing in (1, 3)]
    alone, shared = (training.describe_thresholds(training.make_thresholds(values, j, 0.05), j) for j in judged)
    assert "share a dialogue" not in alone
    assert "warning: 100 turns share a dialogue with another" in shared


def test_no_value_is_both_low_and_good():
    judged = held_out([1.0] * 100 + [0.0] * 100)
    values = np.concatenate([np.linspace(0.5, 1, 100), np.linspace(0, 0.3, 100)])
    values[:3] = 0.4
    made = training.make_thresholds(values, judged, 0.05)
    low, good = made["threshold"], made["good_threshold"]
    assert good.value == low.value
    assert good.recall.share == pytest.approx((values[:100] >= low.value).mean())


@pytest.mark.parametrize("shape", [(40, 90), (90, 40)])
def test_crossed_predictions_are_those_of_heads_fitted_without_the_dialogue(shape):
    generator = np.random.default_rng(0)
    design, wanted = generator.normal(size=shape), generator.random(shape[0])
    dialogue_of = np.arange(shape[0]) // 4
    left = dialogue_of != 3
    for penalty, missed, crossed in solve_ridge(design, wanted, dialogue_of):
        gram = design[left].T @ design[left] + penalty * np.eye(shape[1])
        weights = np.linalg.solve(gram, design[left].T @ wanted[left])
        np.testing.assert_allclose(crossed[~left], design[~left] @ weights, atol=1e-6)
        np.testing.assert_allclose(wanted - design @ (design.T @ missed / penalty), missed, atol=1e-6)


def test_a_head_finds_a_line_through_scaled_and_constant_columns():
    generator = np.random.default_rng(0)
    features = generator.normal(size=(300, 5)) * [1, 100, 0.01, 1, 0] + 3
    wanted = 0.5 + 0.1 * features[:, 0] - 0.001 * features[:, 1]
    head = fit_head(features, wanted, np.arange(300) // 3)
    assert np.corrcoef(head.predict(features), wanted)[0, 1] > 0.999
    assert np.corrcoef(head.crossed, wanted)[0, 1] > 0.999


def test_a_curve_says_what_more_rows_give_only_where_its_points_do():
    held = HeldOut(np.array([0.0, 1.0] * 30), np.arange(60) // 2)
    rising = [0.6, 0.7, 0.77]
    agreement = held.compare(np.arange(60.0))
    points = [
        CurvePoint(rows, 4, replace(agreement, value=value))
        for rows, value in zip((200, 400, 800), rising, strict=True)
    ]
    noise = np.random.default_rng(0).normal(0, 0.01, (3, 400))
    gain = extrapolate(points, np.array(rising)[:, None] + noise)
    assert 0.02 < gain.low < gain.value < gain.high < 0.09
    assert extrapolate(points[1:], np.array(rising[1:])[:, None] + noise[1:]) is None
    flat = [replace(each, agreement=replace(each.agreement, value=0.7)) for each in points]
    assert extrapolate(flat, 0.7 + noise) is None
