"""The FED scorer over a backend that tells which tokens each prediction saw."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fed import (
    DIALOGUE,
    EOS,
    QUALITIES,
    REFERENCE,
    PathBackend,
    make_fed_bundle,
    make_fed_scorer,
    path_loss,
    score,
    turn,
)
from turnscore_core.errors import InvalidRequestError
from turnscore_core.scorers.fed.scorer import FedScorer
from turnscore_models import InvalidManifestError


def tokens_of(scorer: FedScorer, text: str) -> list[int]:
    [ids] = scorer._tokenizer.encode_follow_ups([text])
    return ids


def expected_losses(scorer: FedScorer, texts: Sequence[str], follow_up: str) -> tuple[float, float]:
    """The mean loss of the follow-up, and of everything but the first token, one path after the other."""
    context = [EOS]
    for text in texts:
        context += [*tokens_of(scorer, text), EOS]
    whole = context + tokens_of(scorer, follow_up)
    losses = [float(np.float32(path_loss(tuple(whole[: end + 1])))) for end in range(1, len(whole))]
    return float(np.mean(losses[len(context) - 1 :])), float(np.mean(losses))


def expected_value(scorer: FedScorer, texts: Sequence[str], name: str, loss: str) -> float:
    sides: Any = QUALITIES[name]
    means = {
        side: [expected_losses(scorer, texts, each)[loss == "whole_sequence"] for each in sides[side]] or [0.0]
        for side in ("negative", "positive")
    }
    return float(np.mean(means["negative"]) - np.mean(means["positive"]))


@pytest.mark.parametrize("loss", ["response_only", "whole_sequence"])
@pytest.mark.parametrize(
    "parts",
    [
        [["hello"]],
        [["hi", "hello"], ["what?", "no"], ["hi", "hello"]],
        [DIALOGUE[:2], DIALOGUE[:4], DIALOGUE[:6]],
        [["hi", "one"], ["hi", "two"], ["hi", "three things"]],
    ],
    ids=["alone", "batch", "dialogue", "candidates"],
)
def test_every_prediction_sees_the_context_and_its_own_follow_up_alone(
    tmp_path: Path, loss: str, parts: list[list[str]]
) -> None:
    scorer, _ = make_fed_scorer(tmp_path / "b")
    question = scorer.read_options({"loss": loss})
    for raw, texts in zip(score(scorer, [turn(texts, question) for texts in parts]), parts, strict=True):
        for name in QUALITIES:
            assert raw.details[name] == pytest.approx(expected_value(scorer, texts, name, loss), abs=1e-9)


def test_the_value_is_the_mean_over_the_qualities_asked_for(tmp_path: Path) -> None:
    scorer, _ = make_fed_scorer(tmp_path / "b")
    [raw] = score(scorer, [turn(["hi"])])
    assert raw.value == pytest.approx((raw.details["kind"] + raw.details["clear"]) / 2)
    [kind] = score(scorer, [turn(["hi"], scorer.read_options({"qualities": ["kind"]}))])
    assert kind.details.keys() == {"kind", "kind_percentile"}
    assert kind.value == pytest.approx(raw.details["kind"])


def test_turns_of_a_dialogue_share_one_pack_and_its_trunk(tmp_path: Path) -> None:
    scorer, _ = make_fed_scorer(tmp_path / "b")
    [pack] = scorer.encode([turn(DIALOGUE[: end + 1]) for end in (1, 3, 5)])
    assert sorted(pack.answers) == [0, 1, 2]
    assert len(pack.rows) == 4
    used = [count.used for _, count in sorted(zip(pack.answers, pack.tokens, strict=True))]
    assert used == sorted(used)


def test_candidates_share_the_context_and_equal_ones_are_computed_once(tmp_path: Path) -> None:
    scorer, _ = make_fed_scorer(tmp_path / "b")
    [pack] = scorer.encode([turn(["hi there", reply]) for reply in ("one", "two", "one")])
    assert sorted(pack.answers) == [0, 1, 2]
    assert len(pack.rows) == 3
    assert len(pack.rows[0]) == len("hi there") + 2


@pytest.mark.parametrize("window", [512, 1024])
def test_a_long_dialogue_is_divided_before_it_grows_too_large(tmp_path: Path, window: int) -> None:
    scorer, _ = make_fed_scorer(tmp_path / "b", window=window)
    texts = [f"turn {number}" for number in range(200)]
    turns = [turn(texts[: end + 1]) for end in range(1, 100)]
    packs = scorer.encode(turns)
    assert len(packs) > 1
    assert 3 * window < max(pack.real_tokens for pack in packs) <= 4 * window
    assert sorted(place for pack in packs for place in pack.answers) == list(range(99))


def test_the_oldest_tokens_beyond_the_window_are_dropped_and_counted(tmp_path: Path) -> None:
    scorer, _ = make_fed_scorer(tmp_path / "b", window=96)
    [pack] = scorer.encode([turn(["x" * 200, "short"])])
    longest = len("That makes no sense!")
    assert len(pack.rows[0]) == 96 - longest
    assert pack.rows[0][0] == EOS
    assert pack.rows[0][-7:] == (EOS, *tokens_of(scorer, "short"), EOS)
    assert pack.tokens[0].dropped == 200 + 5 + 3 - (96 - longest)


def test_text_that_looks_like_the_separator_is_text(tmp_path: Path) -> None:
    scorer, _ = make_fed_scorer(tmp_path / "b")
    [pack] = scorer.encode([turn(["<|endoftext|>"])])
    assert pack.rows[0].count(EOS) == 2


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"qualities": ["kind", "tasty"]}, "qualities.1"),
        ({"mood": 1}, "mood"),
        ({"own_qualities": {"funny": {}}}, "own_qualities.funny"),
        ({"own_qualities": {f"q{each}": {"positive": ["x"]} for each in range(17)}}, "own_qualities"),
    ],
)
def test_wrong_options_are_refused_by_name(tmp_path: Path, options: Any, field: str) -> None:
    scorer, _ = make_fed_scorer(tmp_path / "b")
    with pytest.raises(InvalidRequestError) as caught:
        scorer.read_options(options)
    assert caught.value.field == field


@pytest.mark.parametrize("wrong", [{"eos_id": 999}, {"default_qualities": ["tasty"]}, {"join": "glued"}])
def test_a_bundle_with_wrong_options_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError):
        FedScorer(make_fed_bundle(tmp_path / "b", **wrong), PathBackend())


@pytest.mark.parametrize("name", ["../outside.npz", "{folder}/outside.npz", "unlisted.npz"])
def test_reference_turns_come_from_the_bundles_own_checked_files(tmp_path: Path, name: str) -> None:
    for place in (tmp_path / "outside.npz", tmp_path / "unlisted.npz"):
        np.savez(place, response_only=REFERENCE, whole_sequence=REFERENCE)
    bundle = make_fed_bundle(tmp_path / "b", reference=name.format(folder=tmp_path))
    (tmp_path / "unlisted.npz").rename(tmp_path / "b" / "unlisted.npz")
    with pytest.raises((RuntimeError, InvalidManifestError), match=r"inside the bundle|gives no SHA-256"):
        FedScorer(bundle, PathBackend())


class WideBackend(PathBackend):
    """A runtime that wants trunks in steps of 128."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk_widths: list[int] = []

    def round_width(self, longest: int) -> int:
        return -(-longest // 128) * 128

    def run(self, feeds: Any) -> dict[str, Any]:
        self.trunk_widths.append(feeds["trunk_ids"].shape[1])
        return super().run(feeds)


def test_trunks_are_as_wide_as_the_runtime_wants_but_never_beyond_the_models_positions(tmp_path: Path) -> None:
    plain, _ = make_fed_scorer(tmp_path / "plain", window=200)
    wide_backend = WideBackend()
    wide = FedScorer(make_fed_bundle(tmp_path / "wide", window=200), wide_backend)
    for texts in (DIALOGUE[:2], [*DIALOGUE, "so sorry to hear that, how old was it? " * 6]):
        assert score(wide, [turn(texts)]) == score(plain, [turn(texts)])
    assert wide_backend.trunk_widths == [128, 200]
