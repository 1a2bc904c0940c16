"""FED over a backend that tells which tokens each prediction saw; and qualities of a caller's or a deployment's own."""

import itertools

import numpy as np
import pytest
from support.fed import DIALOGUE, EOS, REFERENCE, PathBackend, make_fed_bundle, make_fed_scorer, score, turn
from turnscore_core.errors import InvalidRequestError
from turnscore_core.scorers.fed.plans import KEPT_BYTES, MAX_TREE_TOKENS
from turnscore_core.scorers.fed.scorer import FedScorer
from turnscore_models.manifest import InvalidManifestError


def test_the_value_is_the_mean_over_the_qualities_asked_for(tmp_path):
    scorer, _ = make_fed_scorer(tmp_path / "b")
    [raw] = score(scorer, [turn(["hi"])])
    assert raw.value == pytest.approx((raw.details["kind"] + raw.details["clear"]) / 2)
    [kind] = score(scorer, [turn(["hi"], scorer.read_options({"qualities": ["kind"]}))])
    assert kind.details.keys() == {"kind", "kind_percentile"}
    assert kind.value == pytest.approx(raw.details["kind"])


@pytest.mark.parametrize("window", [512, 1024])
def test_a_long_dialogue_is_divided_before_it_grows_too_large(tmp_path, window):
    scorer, _ = make_fed_scorer(tmp_path / "b", window=window)
    texts = [f"turn {number}" for number in range(200)]
    turns = [turn(texts[: end + 1]) for end in range(1, 100)]
    packs = scorer.encode(turns)
    assert len(packs) > 1
    assert 3 * window < max(pack.real_tokens for pack in packs) <= 4 * window
    assert sorted(place for pack in packs for place in pack.answers) == list(range(99))


def test_text_that_looks_like_the_separator_is_text(tmp_path):
    scorer, _ = make_fed_scorer(tmp_path / "b")
    [pack] = scorer.encode([turn(["<|endoftext|>"])])
    assert pack.rows[0].count(EOS) == 2


WRONG_OPTIONS = [
    ({"qualities": ["kind", "tasty"]}, "qualities.1"),
    ({"mood": 1}, "mood"),
    ({"own_qualities": {"funny": {}}}, "own_qualities.funny"),
    ({"own_qualities": {f"q{each}": {"positive": ["x"]} for each in range(17)}}, "own_qualities"),
]


@pytest.mark.parametrize(("options", "field"), WRONG_OPTIONS)
def test_wrong_options_are_refused_by_name(tmp_path, options, field):
    scorer, _ = make_fed_scorer(tmp_path / "b")
    with pytest.raises(InvalidRequestError) as caught:
        scorer.read_options(options)
    assert caught.value.field == field
    assert not caught.value.message[0].isupper()


@pytest.mark.parametrize("wrong", [{"eos_id": 999}, {"default_qualities": ["tasty"]}, {"join": "glued"}])
def test_a_bundle_with_wrong_options_is_refused(tmp_path, wrong):
    with pytest.raises(RuntimeError):
        FedScorer(make_fed_bundle(tmp_path / "b", **wrong), PathBackend())


@pytest.mark.parametrize("name", ["../outside.npz", "{folder}/outside.npz", "unlisted.npz"])
def test_reference_turns_come_from_the_bundles_own_checked_files(tmp_path, name):
    for place in (tmp_path / "outside.npz", tmp_path / "unlisted.npz"):
        np.savez(place, response_only=REFERENCE, whole_sequence=REFERENCE)
    bundle = make_fed_bundle(tmp_path / "b", reference=name.format(folder=tmp_path))
    (tmp_path / "unlisted.npz").rename(tmp_path / "b" / "unlisted.npz")
    with pytest.raises((RuntimeError, InvalidManifestError), match=r"inside the bundle|gives no SHA-256"):
        FedScorer(bundle, PathBackend())


class WideBackend(PathBackend):
    """A runtime that wants trunks in steps of 128."""

    def __init__(self):
        super().__init__()
        self.trunk_widths = []

    def round_width(self, longest):
        return -(-longest // 128) * 128

    def run(self, feeds):
        self.trunk_widths.append(feeds["trunk_ids"].shape[1])
        return super().run(feeds)


def test_trunks_are_as_wide_as_the_runtime_wants_but_never_beyond_the_models_positions(tmp_path):
    plain, _ = make_fed_scorer(tmp_path / "plain", window=200)
    wide_backend = WideBackend()
    wide = FedScorer(make_fed_bundle(tmp_path / "wide", window=200), wide_backend)
    for texts in (DIALOGUE[:2], [*DIALOGUE, "so sorry to hear that, how old was it? " * 6]):
        assert score(wide, [turn(texts)]) == score(plain, [turn(texts)])
    assert wide_backend.trunk_widths == [128, 200]


def test_own_follow_ups_that_leave_no_room_for_a_context_are_refused(tmp_path):
    scorer, _ = make_fed_scorer(tmp_path / "b", window=96)
    question = scorer.read_options({"own_qualities": {"long": {"positive": ["x" * 25]}}})
    with pytest.raises(InvalidRequestError, match="25 tokens; at most 24") as caught:
        scorer.encode([turn(["hi"], question)])
    assert caught.value.field == "own_qualities"


def test_a_deployments_follow_up_that_leaves_no_room_is_refused_at_the_start(tmp_path):
    with pytest.raises(RuntimeError, match="25 tokens leaves no room"):
        make_fed_scorer(tmp_path / "b", window=96, own_qualities={"long": {"positive": ["x" * 25]}})


TOO_MANY_FOLLOW_UPS = [
    (8, 16, 16, None),  # 256 follow-ups, 4,096 characters: the most of both
    (16, 9, 3, "288 follow-ups together; at most 256"),
    (8, 16, 17, "4352 characters together; at most 4096"),
    (17, 1, 3, "17 qualities; at most 16"),
]


@pytest.mark.parametrize(("qualities", "sides", "chars", "message"), TOO_MANY_FOLLOW_UPS)
def test_own_follow_ups_are_bounded_together_before_any_is_tokenized(
    tmp_path, monkeypatch, qualities, sides, chars, message
):
    scorer, _ = make_fed_scorer(tmp_path / "b")
    monkeypatch.setattr(scorer._tokenizer, "_encode", refuse_to_tokenize)
    asked = {"own_qualities": many_qualities(qualities, sides, chars)}
    if message is None:
        question = scorer.read_options(asked)
        scorer.estimate_tokens(turn(["hi"], question))
        scorer.fragments_of(turn(["hi"], question))
        return
    with pytest.raises(InvalidRequestError, match=message) as caught:
        scorer.read_options(asked)
    assert caught.value.field == "own_qualities"


def refuse_to_tokenize(_):
    raise AssertionError("nothing may be tokenized here")


def many_qualities(qualities, sides, chars):
    """Follow-ups of that length, no two alike."""
    texts = (f"{number:0{chars}d}"[:chars].replace("0", "z") for number in itertools.count(1_000))
    return {
        f"q{number}": {side: list(itertools.islice(texts, sides)) for side in ("positive", "negative")}
        for number in range(qualities)
    }


def test_own_follow_ups_of_too_many_tokens_together_are_refused_and_leave_nothing(tmp_path):
    scorer, _ = make_fed_scorer(tmp_path / "b", window=512)
    question = scorer.read_options({"own_qualities": many_qualities(8, 16, 16)})
    with pytest.raises(InvalidRequestError, match="4096 tokens together; at most 2048") as caught:
        scorer.encode([turn(["hi"], question)])
    assert caught.value.field == "own_qualities"
    assert not scorer.is_planned(turn(["hi"], question))
    assert scorer._plans._kept_bytes == 0


def test_a_callers_largest_question_is_dealt_out_and_scored_as_its_qualities_are_alone(tmp_path):
    scorer, _ = make_fed_scorer(tmp_path / "b")
    own = many_qualities(8, 16, 16)
    asked = turn(DIALOGUE, scorer.read_options({"own_qualities": own}))
    packs = scorer.encode([asked])
    assert len(packs) == packs[0].pieces > 4
    assert max(pack.real_tokens for pack in packs) < MAX_TREE_TOKENS + 100
    whole = scorer.merge(packs[0], [raw for pack in reversed(packs) for raw in scorer.score([pack])])
    for name, quality in own.items():
        alone = turn(DIALOGUE, scorer.read_options({"own_qualities": {name: quality}}))
        assert score(scorer, [alone])[0].details[name] == whole.details[name]
    assert whole.value == pytest.approx(np.mean(list(whole.details.values())))
    assert not whole.is_comparable


def test_plans_are_kept_within_their_bytes(tmp_path):
    scorer, _ = make_fed_scorer(tmp_path / "b")
    for number in range(25):  # some 7 MB
        own = {**many_qualities(7, 16, 18), "last": {"positive": [f"the last one {number}"]}}
        scorer.encode([turn(["hi"], scorer.read_options({"own_qualities": own}))])
    assert KEPT_BYTES / 4 < scorer._plans._kept_bytes <= KEPT_BYTES
