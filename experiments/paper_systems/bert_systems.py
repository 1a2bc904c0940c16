"""Training of ctx-RUBER, PONE, USR and 3P: networks on a frozen BERT, and whole BERTs with a head."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel
from turnscore_assessment.data.dialogues import LabelledTurn
from turnscore_assessment.figures import Floats, compute_auc
from turnscore_core.scorers.usr import UsrFormula
from turnscore_exporters.data.pairs import make_exchange
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.pair_models.bundles import apply_formula, find_telling, make_formula, score_parts
from turnscore_exporters.pair_models.models import (
    FrozenVectors,
    PairCheckpoint,
    PairNetwork,
    mask_of,
    read_logits,
    score_network,
    split_model,
)
from turnscore_exporters.training.loop import BestWeights, LoopSettings, choose_batch, train

from paper_systems.data import EvalTurn, RandomNegatives, split_words
from paper_systems.ruber import FUSED_ADAM

# Specified: a port's released code: Adam, weight decay 1e-4, 256 pairs a step.
FUSED_ADAMW = partial(torch.optim.AdamW, fused=True)
PAIR_DECAY, PAIR_BATCH = 1e-4, 256


def train_pair_network(
    network: PairNetwork,
    exchanges: Sequence[LabelledTurn],
    negatives: RandomNegatives,
    vectors: FrozenVectors,
    settings: LoopSettings,
    *,
    extra: Sequence[LabelledTurn] = (),
    best: BestWeights | None = None,
    state_path: Path | None = None,
) -> None:
    """Trains in place on the cross entropy: half true replies, half wrong ones that are drawn again each epoch.

    Each step also takes as many of `extra`, where there are any, as it takes pairs. With `best` the weights are those
    that it keeps, else the last.
    """

    def step_loss(step: int) -> Tensor:
        judged = compose_step(exchanges, negatives, step, settings.seed, extra=extra)
        logits = network(vectors.of([each.query for each in judged]), vectors.of([each.response for each in judged]))
        return functional.binary_cross_entropy_with_logits(logits, torch.tensor([each.rating for each in judged]))

    settings = replace(settings, weight_decay=PAIR_DECAY, optimizer=FUSED_ADAM)
    train(network, step_loss, settings, state_path=state_path, follower=best)


def choose_by_auc(
    network: PairNetwork,
    vectors: FrozenVectors,
    exchanges: Sequence[LabelledTurn],
    wrong: Sequence[str],
    settings: LoopSettings,
) -> BestWeights:
    """Keeps the weights with the greatest AUC of the exchanges' replies against as many `wrong` ones."""
    pairs = [(each.query, each.response) for each in exchanges]
    pairs += [(each.query, other) for each, other in zip(exchanges, wrong, strict=True)]
    labels = [1] * len(exchanges) + [0] * len(wrong)

    def measure() -> float:
        network.eval()
        found = compute_auc(score_network(network, vectors, pairs), labels)
        network.train()
        return found

    return BestWeights(measure, settings.steps)


def compose_step(
    exchanges: Sequence[LabelledTurn],
    negatives: RandomNegatives,
    step: int,
    seed: int,
    *,
    batch_size: int = PAIR_BATCH,
    extra: Sequence[LabelledTurn] = (),
) -> list[LabelledTurn]:
    """True replies, as many wrong ones to the same queries, and as many of `extra`."""
    half = max(1, batch_size // 2)
    epoch = step // -(-len(exchanges) // half)
    chosen = choose_batch(len(exchanges), half, step, seed)
    true = [make_exchange(exchanges[index].query, exchanges[index].response, 1.0) for index in chosen]
    drawn = [(index, negatives.draw(index, epoch)) for index in chosen]
    wrong = [make_exchange(exchanges[index].query, exchanges[other].response, 0.0) for index, other in drawn]
    more = [extra[index] for index in choose_batch(len(extra), half, step, seed)] if extra else []
    return [*true, *wrong, *more]


COPIES = 5  # Candidates per true reply. Specified: five to six.
SURE = 0.1  # A candidate counts as fitting from 1 - SURE on, and as wrong up to SURE. Chosen; PONE names it tau.
ALTERED = 0.1  # Share of a reply's words that are altered, as in EDA (Wei and Zou 2019). Specified.
NEAREST = 3  # How many of the candidates are replies to similar queries; the rest are altered copies. Chosen.
QUERIES_AT_ONCE = 512

Judge = Callable[[Sequence[tuple[str, str]]], Floats]
Vectors = NDArray[np.float32]


def find_candidates(exchanges: Sequence[LabelledTurn], queries: Vectors, seed: int = 0) -> list[tuple[int, str]]:
    """Several (index, text) for each exchange: replies to the most similar queries, and altered copies.

    `queries` [exchanges, width] are the queries' vectors, scaled to length 1. PONE also writes replies by a language
    model; replies to the nearest queries replace these.
    """
    found: list[tuple[int, str]] = []
    for start in range(0, len(exchanges), QUERIES_AT_ONCE):
        likeness = queries[start : start + QUERIES_AT_ONCE] @ queries.T
        for row in range(len(likeness)):
            index = start + row
            near = _nearest(likeness[row], index, exchanges)
            found += [(index, exchanges[other].response) for other in near]
            generator = random.Random(f"{seed} {index}")
            for _ in range(COPIES - len(near)):
                found.append((index, alter_reply(exchanges[index].response, generator)))
    return found


def alter_reply(reply: str, generator: random.Random) -> str:
    """The reply with a tenth of its words, at least one, swapped, doubled elsewhere or dropped."""
    words = split_words(reply)
    for _ in range(max(1, round(ALTERED * len(words)))):
        way, place = generator.randrange(3), generator.randrange(len(words))
        if way == 0:
            other = generator.randrange(len(words))
            words[place], words[other] = words[other], words[place]
        elif way == 1:
            words.insert(generator.randrange(len(words) + 1), words[place])
        elif len(words) > 1:
            del words[place]
    return " ".join(words)


def filter_candidates(
    exchanges: Sequence[LabelledTurn], candidates: Sequence[tuple[int, str]], judge: Judge, sure: float = SURE
) -> list[LabelledTurn]:
    """The candidates that `judge` is sure of, with its label."""
    pairs = [(exchanges[index].query, text) for index, text in candidates]
    kept: list[LabelledTurn] = []
    for (query, text), probability in zip(pairs, judge(pairs), strict=True):
        if probability >= 1 - sure or probability <= sure:
            kept.append(make_exchange(query, text, float(probability >= 0.5)))
    return kept


def _nearest(likeness: NDArray[np.float32], index: int, exchanges: Sequence[LabelledTurn]) -> list[int]:
    most = min(4 * NEAREST, len(likeness) - 1)
    ranked = np.argpartition(-likeness, most)[: most + 1]
    ranked = ranked[np.argsort(-likeness[ranked], kind="stable")]
    own = exchanges[index].dialogue
    return [int(each) for each in ranked if exchanges[each].dialogue != own][:NEAREST]


WEIGHT_DECAY = 0.01

Draw = Callable[[int], list[LabelledTurn]]  # Gives the judgements of a step.


def train_joint(
    checkpoint: PairCheckpoint,
    draw: Draw,
    settings: LoopSettings,
    *,
    class_weight: float = 1.0,
    state_path: Path | None = None,
) -> None:
    """Trains in place on the cross entropy of the judgements that `draw` gives; fitting ones weigh `class_weight`."""
    model = checkpoint.model
    settings = replace(settings, weight_decay=WEIGHT_DECAY, optimizer=FUSED_ADAMW)

    def step_loss(step: int) -> Tensor:
        chosen = draw(step)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = read_logits(checkpoint, [(each.query, each.response) for each in chosen])
        labels, weight = torch.tensor([each.rating for each in chosen]), torch.tensor(class_weight)
        return functional.binary_cross_entropy_with_logits(logits.float(), labels, pos_weight=weight)

    train(model, step_loss, settings, state_path=state_path)


# Shares of tokens: predicted ones; of these, ones kept, and ones replaced by another token. Specified.
MASKED_SHARE, KEPT_SHARE, OTHER_SHARE = 0.15, 0.1, 0.1
NOT_PREDICTED = -100  # The label of a token that is not predicted.


def train_masked(
    checkpoint: PairCheckpoint,
    exchanges: Sequence[LabelledTurn],
    settings: LoopSettings,
    *,
    batch_size: int,
    state_path: Path | None = None,
) -> None:
    """Trains the model in place to predict masked tokens of exchanges."""
    model = checkpoint.model
    settings = replace(settings, weight_decay=WEIGHT_DECAY, optimizer=FUSED_ADAMW)

    def step_loss(step: int) -> Tensor:
        chosen = [exchanges[index] for index in choose_batch(len(exchanges), batch_size, step, settings.seed)]
        rows = checkpoint.lay_out([(each.query, each.response) for each in chosen])
        inputs = checkpoint.collate([row.ids for row in rows], [row.response_start for row in rows])
        inputs["input_ids"], wanted = hide_tokens(inputs["input_ids"], checkpoint)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return hidden_loss(model, inputs, wanted)

    train(model, step_loss, settings, state_path=state_path)


def hidden_loss(model: PreTrainedModel, inputs: Mapping[str, Tensor], wanted: Tensor) -> Tensor:
    """The mean cross entropy of the `wanted` tokens [rows, tokens]; the others are not multiplied by the word table."""
    trunk, head = split_model(model)
    is_wanted = wanted != NOT_PREDICTED
    hidden = trunk(**inputs).last_hidden_state[is_wanted]
    return functional.cross_entropy(head(hidden).float(), wanted[is_wanted])


def hide_tokens(ids: Tensor, checkpoint: PairCheckpoint) -> tuple[Tensor, Tensor]:
    """The ids with some tokens hidden, and the labels; special tokens and padding are never predicted."""
    texts = checkpoint.texts
    is_text = ~torch.isin(ids, torch.tensor([texts.first_id, texts.separator_id, texts.pad_id]))
    drawn = (torch.rand(ids.shape) < MASKED_SHARE) & is_text
    if not drawn.any():  # a short batch may hide nothing; its loss would be NaN
        drawn = is_text & (torch.cumsum(is_text.flatten(), 0).reshape(ids.shape) == 1)
    wanted = torch.where(drawn, ids, NOT_PREDICTED)
    way = torch.rand(ids.shape)
    hidden = torch.where(drawn & (way >= KEPT_SHARE + OTHER_SHARE), mask_of(checkpoint), ids)
    others = torch.randint(0, int(checkpoint.config.vocab_size), ids.shape)
    is_other = drawn & (way >= KEPT_SHARE) & (way < KEPT_SHARE + OTHER_SHARE)
    return torch.where(is_other, others, hidden), wanted


LEAST_RATED = 20  # Fewest turns for a regression. Chosen: ten for each of its two parts.


def fit_overall(found: Mapping[str, Sequence[float] | Floats], ratings: Sequence[float]) -> UsrFormula:
    """The least squares fit of people's ratings by the parts; turns with an unknown part are left out.

    A part that varies by less than LEAST_SPREAD weighs 0. ExporterError where fewer than 20 turns are left, or no part
    varies by more.
    """
    columns = np.array([found[name] for name in found], dtype=np.float64).T
    known = ~np.isnan(columns).any(axis=1)
    columns, wanted = columns[known], np.asarray(ratings, dtype=np.float64)[known]
    if len(wanted) < LEAST_RATED:
        raise ExporterError(f"{len(wanted)} rated turns with every part; a regression needs {LEAST_RATED}")
    telling = find_telling({name: columns[:, place] for place, name in enumerate(found)})
    design = [(columns[:, list(found).index(name)] - center) / scale for name, (center, scale) in telling.items()]
    regression = LinearRegression().fit(np.array(design).T, wanted)
    weights = dict(zip(telling, map(float, regression.coef_), strict=True))
    return make_formula(found, telling, weights, float(regression.intercept_))


@dataclass(frozen=True, kw_only=True)
class Usr:
    """The trained system. Without facts there is no part of them."""

    masked: PairCheckpoint
    retrieval: PairCheckpoint
    formula: UsrFormula

    def score(self, asked: Sequence[EvalTurn]) -> dict[str, Floats]:
        """`usr`, `mlm` and `retrieval`."""
        found = score_parts(self.masked, self.retrieval, [(each.query, each.response) for each in asked])
        return {"usr": apply_formula(self.formula, found), **found}
