"""The baselines by name: how each is trained from the data. Measures nothing."""

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from turnscore_assessment.data.labelled_turns import DAILYDIALOG, RatedTurn, read_rated_turns, read_thumbs

from turnscore_exporters.baselines.encoders.checkpoints import load_masked_model, load_pair_model
from turnscore_exporters.baselines.material.asked import Asked
from turnscore_exporters.baselines.material.samplers import RandomNegatives, ReplyPool
from turnscore_exporters.baselines.pair_trainers import train_contextual, train_pone
from turnscore_exporters.baselines.plan import Plan, Trained
from turnscore_exporters.baselines.systems import joint, masked, ruber, usr
from turnscore_exporters.baselines.systems.contextual import Judgement
from turnscore_exporters.baselines.systems.networks import RuberNetwork
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.json_files import write_json

RATINGS_FILE, THUMBS_FILE = "turn_ratings.jsonl.gz", "convai2017.jsonl.gz"
FORMULA_FILE = "overall.json"
SCALE_EXCHANGES = 2000
"""Training exchanges that a scale is fitted on. Chosen."""
MOST_FITTED = 300
"""Rated turns that fit USR's two weights. Chosen: it reads a turn some fifteen times."""


def train_ruber(plan: Plan) -> Trained:
    """Trains RUBER: the ranking loss, then the scales, from training exchanges alone."""
    exchanges = plan.train
    vectors = plan.word_vectors([text for each in exchanges for text in (each.query, each.reply)])
    negatives = RandomNegatives(ReplyPool(exchanges), plan.seed)
    torch.manual_seed(plan.seed)
    network = RuberNetwork(vectors.width)
    ruber.train_network(
        network,
        exchanges,
        negatives,
        vectors,
        plan.settings("ruber"),
        learning_rate=plan.size.learning_rate,
        state_path=plan.state("ruber"),
    )
    chosen = exchanges[:SCALE_EXCHANGES]
    pool = RandomNegatives(ReplyPool(chosen), plan.seed)
    scales = ruber.fit_scales(network, vectors, chosen, lambda index: pool.draw(index, -1))
    torch.save(network.state_dict(), plan.output / "weights.pt")
    baseline = ruber.Ruber(network=network, vectors=vectors, unreferenced=scales[0], referenced=scales[1])
    facts = {"words": vectors.name, "scales": [[each.low, each.high] for each in scales]}
    return Trained(baseline, facts, exchanges=len(exchanges))


def train_usr(plan: Plan) -> Trained:
    """Trains USR: masked words, then retrieval from the same weights, then the regression on rated turns."""
    exchanges = plan.train
    torch.manual_seed(plan.seed)  # draws the heads that the checkpoint lacks
    masked_model = load_masked_model(plan.encoder)
    masked.train_masked(
        masked_model,
        exchanges,
        plan.settings("usr masked words"),
        batch_size=plan.size.batch_size,
        learning_rate=plan.size.learning_rate,
        state_path=plan.state("mlm"),
    )
    masked_model.save(plan.output / "masked")
    torch.manual_seed(plan.seed)
    retrieval = load_pair_model(str(plan.output / "masked"))
    negatives = RandomNegatives(ReplyPool(exchanges), plan.seed)
    joint.train_joint(
        retrieval,
        joint.draw_retrieval(exchanges, negatives, plan.size.batch_size, plan.seed),
        plan.settings("usr retrieval"),
        learning_rate=plan.size.learning_rate,
        state_path=plan.state("retrieval"),
    )
    retrieval.save(plan.output / "retrieval")
    rated = _read_fitted(plan.data, plan.seed)
    asked = [Asked(context=tuple(text for _, text in each.context), response=each.response) for each in rated]
    formula = usr.fit_overall(usr.score_parts(masked_model, retrieval, asked), _standardize(rated))
    baseline = usr.Usr(masked=masked_model, retrieval=retrieval, formula=formula)
    write_json(plan.output / FORMULA_FILE, asdict(formula))
    facts = {"overall": asdict(formula), "fitted_on": len(rated)}
    return Trained(baseline, facts, frozenset(each.dialogue for each in rated), len(exchanges))


def train_annotated(plan: Plan) -> Trained:
    """Trains 3P: a pair model on people's thumbs for ConvAI's bots."""
    turns = [each for each in read_thumbs(plan.data / THUMBS_FILE) if each.is_fitted_on]
    judgements = [Judgement(each.context[-1][1], each.response, each.rating) for each in turns]
    up = sum(each.fits for each in judgements)
    if not 0 < up < len(judgements):
        raise ExporterError(f"{len(judgements)} thumbs to train on, {up:.0f} of them up: both kinds are needed")
    torch.manual_seed(plan.seed)
    checkpoint = load_pair_model(plan.encoder)
    joint.train_joint(
        checkpoint,
        joint.draw_annotated(judgements, plan.size.batch_size, plan.seed),
        plan.settings("3p"),
        learning_rate=plan.size.learning_rate,
        class_weight=(len(judgements) - up) / up,
        state_path=plan.state("3p"),
    )
    checkpoint.save(plan.output / "pair")
    seen = frozenset(each.dialogue for each in turns)
    return Trained(joint.Joint(name="3p", checkpoint=checkpoint), {"thumbs": len(judgements), "up": int(up)}, seen)


def _read_fitted(folder: Path, seed: int) -> list[RatedTurn]:
    """The rated turns that fit values and whose texts may be used commercially."""
    turns = read_rated_turns(folder / RATINGS_FILE)
    fitted = [each for each in turns if each.is_fitted_on and each.set_name != DAILYDIALOG]
    random.Random(seed).shuffle(fitted)  # noqa: S311
    return fitted[:MOST_FITTED]


def _standardize(rated: Sequence[RatedTurn]) -> list[float]:
    """Ratings in standard deviations from their own set's mean: each set has its own scale."""
    by_set: dict[str, list[float]] = {}
    for each in rated:
        by_set.setdefault(each.set_name, []).append(each.rating)
    middle = {name: (float(np.mean(found)), float(np.std(found)) or 1.0) for name, found in by_set.items()}
    return [(each.rating - middle[each.set_name][0]) / middle[each.set_name][1] for each in rated]


Train = Callable[[Plan], Trained]
TRAINERS: dict[str, Train] = {
    "ruber": train_ruber,
    "ctx-ruber": train_contextual,
    "pone": train_pone,
    "usr": train_usr,
    "3p": train_annotated,
}
