"""Qualities of a caller's or a deployment's own: bounded before they cost anything, and scored like the others."""

import gc
import itertools
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fed import DIALOGUE, make_fed_scorer, score, turn
from turnscore_core.errors import InvalidRequestError
from turnscore_core.scorers.fed.plans import KEPT_BYTES, MAX_TREE_TOKENS


def test_own_follow_ups_that_leave_no_room_for_a_context_are_refused(tmp_path: Path) -> None:
    scorer, _ = make_fed_scorer(tmp_path / "b", window=96)
    question = scorer.read_options({"own_qualities": {"long": {"positive": ["x" * 25]}}})
    with pytest.raises(InvalidRequestError, match="25 tokens; at most 24") as caught:
        scorer.encode([turn(["hi"], question)])
    assert caught.value.field == "own_qualities"


def test_a_deployments_follow_up_that_leaves_no_room_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="25 tokens leaves no room"):
        make_fed_scorer(tmp_path / "b", window=96, own_qualities={"long": {"positive": ["x" * 25]}})


@pytest.mark.parametrize(
    ("qualities", "sides", "chars", "message"),
    [
        (8, 16, 16, None),  # 256 follow-ups, 4,096 characters: the most of both
        (16, 9, 3, "288 follow-ups together; at most 256"),
        (8, 16, 17, "4352 characters together; at most 4096"),
        (17, 1, 3, "17 qualities; at most 16"),
    ],
)
def test_own_follow_ups_are_bounded_together_before_any_is_tokenized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qualities: int, sides: int, chars: int, message: str | None
) -> None:
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


def refuse_to_tokenize(_: list[str]) -> list[list[int]]:
    raise AssertionError("nothing may be tokenized here")


def many_qualities(qualities: int, sides: int, chars: int) -> dict[str, Any]:
    """Follow-ups of that length, no two alike."""
    texts = (f"{number:0{chars}d}"[:chars].replace("0", "z") for number in itertools.count(1_000))
    return {
        f"q{number}": {side: list(itertools.islice(texts, sides)) for side in ("positive", "negative")}
        for number in range(qualities)
    }


def test_own_follow_ups_of_too_many_tokens_together_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    scorer, _ = make_fed_scorer(tmp_path / "b", window=512)
    question = scorer.read_options({"own_qualities": many_qualities(8, 16, 16)})
    with pytest.raises(InvalidRequestError, match="4096 tokens together; at most 2048") as caught:
        scorer.encode([turn(["hi"], question)])
    assert caught.value.field == "own_qualities"
    assert not scorer.is_planned(turn(["hi"], question))
    assert scorer._plans._kept_bytes == 0


def test_a_callers_largest_question_is_dealt_out_and_scored_as_its_qualities_are_alone(tmp_path: Path) -> None:
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


def test_plans_are_kept_within_their_bytes(tmp_path: Path) -> None:
    scorer, _ = make_fed_scorer(tmp_path / "b")
    scorer.encode([turn(["hi"])])
    tracemalloc.start()
    try:
        for number in range(25):  # some 7 MB
            own = many_qualities(7, 16, 18)
            own["last"] = {"positive": [f"the last one {number}"]}
            scorer.encode([turn(["hi"], scorer.read_options({"own_qualities": own}))])
        del own
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert scorer._plans._kept_bytes <= KEPT_BYTES
    assert KEPT_BYTES / 4 < kept < 1.2 * KEPT_BYTES
