"""Networks, scales, and PONE's candidates and filter on data that fits on a page."""

import random

import numpy as np
import pytest
import torch
from paper_systems.bert_systems import alter_reply, filter_candidates, find_candidates
from paper_systems.data import ReplyPool, normalize, split_words
from paper_systems.ruber import Texts, TrainingScale, WordReader, blend_mean, blend_min, hinge_loss
from support.fakes import POOL, exchanges
from turnscore_exporters.data.convai import TextPair
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.pair_models.models import PairHead


def test_a_score_does_not_hang_on_what_else_is_scored() -> None:
    """RUBER and PONE scaled by the least and greatest score of the test set itself."""
    scale = TrainingScale.fit(np.linspace(-2, 2, 1001).tolist())
    alone = [float(scale.apply([each])[0]) for each in (-1.0, 0.0, 1.5)]
    among = scale.apply([-1.0, 0.0, 1.5, 400.0, -400.0])
    assert among[:3].tolist() == alone
    assert among[3:].tolist() == [1.0, 0.0]
    assert not hasattr(scale, "fit_transform")


def test_a_scale_of_equal_scores_or_none_is_refused() -> None:
    with pytest.raises(ExporterError, match=r"every training score is 0\.5"):
        TrainingScale.fit([0.5] * 10)
    with pytest.raises(ExporterError, match="needs training scores"):
        TrainingScale.fit([])


def test_blends_take_the_lesser_and_the_mean() -> None:
    left, right = np.array([0.2, 0.9]), np.array([0.6, 0.5])
    assert blend_min(left, right).tolist() == [0.2, 0.5]
    assert blend_mean(left, right).tolist() == pytest.approx([0.4, 0.7])


def test_the_filter_keeps_what_the_model_is_sure_of_under_the_model_s_own_label() -> None:
    mine = exchanges(("a", "q", "r"))
    candidates = [(0, "sure"), (0, "unsure"), (0, "wrong")]
    kept = filter_candidates(mine, candidates, lambda pairs: np.array([0.95, 0.6, 0.05]), sure=0.1)
    assert kept == [TextPair("q", "sure", 1.0), TextPair("q", "wrong", 0.0)]


def test_candidates_are_altered_copies_and_replies_to_like_queries_of_other_dialogues() -> None:
    vectors = np.zeros((len(POOL), 2), dtype=np.float32)
    vectors[:, 0] = 1
    found = find_candidates(ReplyPool(POOL), vectors)
    assert [index for index, _ in found] == [index for index in range(len(POOL)) for _ in range(5)]
    near = {text for index, text in found if index == 0} & {each.reply for each in POOL}
    assert near
    assert not near & {each.reply for each in POOL if each.dialogue == "a"}


@pytest.mark.parametrize("seed", range(5))
def test_an_altered_reply_has_the_reply_s_words_and_at_least_one(seed: int) -> None:
    altered = alter_reply("One single day!", random.Random(seed))
    assert set(split_words(altered)) <= set(split_words("One single day!"))
    assert split_words(altered)
    assert normalize(alter_reply("yes", random.Random(seed))).split()[0] == "yes"


def test_the_hinge_is_zero_from_the_margin_on_and_grows_below_it() -> None:
    fitting, wrong = torch.tensor([0.9, 0.6, 0.2]), torch.tensor([0.3, 0.4, 0.6])
    assert hinge_loss(fitting, wrong, 0.5).item() == pytest.approx((0 + 0.3 + 0.9) / 3)


def test_padding_is_never_read() -> None:
    """The released port's GRU read the pads, in training alone."""
    torch.manual_seed(0)
    reader = WordReader(3, 4).eval()
    short, long = (np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32) for n in (2, 9))
    alone = reader(*Texts.of([short]).parts())
    beside = reader(*Texts.of([short, long]).parts())[:1]
    assert torch.allclose(alone, beside, atol=1e-6)


def test_the_pair_head_reads_both_sides_and_their_product() -> None:
    torch.manual_seed(0)
    head, query = PairHead(4).eval(), torch.randn(1, 4)
    one, other = torch.randn(1, 4), torch.randn(1, 4)
    assert head(query, one) != head(query, other)
    with torch.no_grad():
        before = head(query, one).item()
        head.quadratic.zero_()
        assert head(query, one).item() != before
