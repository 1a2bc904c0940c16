"""The systems by name: how each is trained from the data."""

import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from turnscore_assessment.data.dialogues import DAILYDIALOG, LabelledTurn, read_rated_turns, read_thumbs
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.json_files import write_json
from turnscore_exporters.pair_models.bundles import score_parts
from turnscore_exporters.pair_models.models import (
    FrozenVectors,
    PairNetwork,
    load_masked_model,
    load_pair_model,
    score_network,
    score_pairs,
)
from turnscore_exporters.training.encoders import load_encoder
from turnscore_exporters.training.loop import choose_batch

from paper_systems.bert_systems import (
    Usr,
    choose_by_auc,
    compose_step,
    filter_candidates,
    find_candidates,
    fit_overall,
    train_joint,
    train_masked,
    train_pair_network,
)
from paper_systems.data import PairJudge, RandomNegatives, WeightedNegatives, split_validation
from paper_systems.plan import Trained, TrainingPlan
from paper_systems.ruber import Ruber, RuberNetwork, fit_scales, train_ruber_network

RATINGS_FILE, THUMBS_FILE = "turn_ratings.jsonl.gz", "convai2017.jsonl.gz"
SCALE_EXCHANGES = 2000  # Training exchanges that a scale is fitted on. Chosen.
MOST_FITTED = 300  # Rated turns that fit USR's two weights. Chosen: it reads a turn some fifteen times.


def train_ruber(plan: TrainingPlan) -> Trained:
    """Trains RUBER: the ranking loss, then the scales, from training exchanges alone."""
    exchanges, _ = plan.parts
    vectors = plan.word_vectors([text for each in exchanges for text in (each.query, each.response)])
    negatives = RandomNegatives(exchanges, plan.seed)
    torch.manual_seed(plan.seed)
    network = RuberNetwork(vectors.width)
    train_ruber_network(network, exchanges, negatives, vectors, plan.settings("ruber"), plan.state("ruber"))
    chosen = exchanges[:SCALE_EXCHANGES]
    pool = RandomNegatives(chosen, plan.seed)
    scales = fit_scales(network, vectors, chosen, lambda index: pool.draw(index, -1))
    torch.save(network.state_dict(), plan.output / "weights.pt")
    baseline = Ruber(network=network, vectors=vectors, unreferenced=scales[0], referenced=scales[1])
    facts = {"words": vectors.name, "scales": [[each.low, each.high] for each in scales]}
    return Trained(baseline, facts, exchanges=len(exchanges))


def train_usr(plan: TrainingPlan) -> Trained:
    """Trains USR: masked words, then retrieval from the same weights, then the regression on rated turns."""
    exchanges, _ = plan.parts
    torch.manual_seed(plan.seed)  # draws the heads that the checkpoint lacks
    masked, size = load_masked_model(plan.encoder), plan.size.batch_size
    train_masked(masked, exchanges, plan.settings("usr masked words"), batch_size=size, state_path=plan.state("mlm"))
    masked.save(plan.output / "masked")
    torch.manual_seed(plan.seed)
    retrieval = load_pair_model(str(plan.output / "masked"))
    negatives = RandomNegatives(exchanges, plan.seed)
    train_joint(
        retrieval,
        lambda step: compose_step(exchanges, negatives, step, plan.seed, batch_size=size),
        plan.settings("usr retrieval"),
        state_path=plan.state("retrieval"),
    )
    retrieval.save(plan.output / "retrieval")
    rated = _read_fitted(plan.data, plan.seed)
    parts = score_parts(masked, retrieval, [(each.query, each.response) for each in rated])
    formula = fit_overall(parts, _standardize(rated))
    baseline = Usr(masked=masked, retrieval=retrieval, formula=formula)
    write_json(plan.output / "overall.json", formula)
    facts = {"overall": formula.model_dump(), "fitted_on": len(rated)}
    return Trained(baseline, facts, frozenset(each.dialogue for each in rated), len(exchanges))


def train_annotated(plan: TrainingPlan) -> Trained:
    """Trains 3P: a pair model on people's thumbs for ConvAI's bots."""
    judgements = [each for each in read_thumbs(plan.data / THUMBS_FILE) if each.is_fitted_on]
    up = sum(each.rating for each in judgements)
    if not 0 < up < len(judgements):
        raise ExporterError(f"{len(judgements)} thumbs to train on, {up:.0f} of them up: both kinds are needed")
    torch.manual_seed(plan.seed)
    checkpoint = load_pair_model(plan.encoder)
    train_joint(
        checkpoint,
        lambda step: [judgements[at] for at in choose_batch(len(judgements), plan.size.batch_size, step, plan.seed)],
        plan.settings("3p"),
        class_weight=(len(judgements) - up) / up,
        state_path=plan.state("3p"),
    )
    checkpoint.save(plan.output / "pair")
    seen = frozenset(each.dialogue for each in judgements)
    return Trained(PairJudge("3p", partial(score_pairs, checkpoint)), {"thumbs": len(judgements), "up": int(up)}, seen)


def _read_fitted(folder: Path, seed: int) -> list[LabelledTurn]:
    """The rated turns that fit values and whose texts may be used commercially."""
    turns = read_rated_turns(folder / RATINGS_FILE)
    fitted = [each for each in turns if each.is_fitted_on and each.set_name != DAILYDIALOG]
    random.Random(seed).shuffle(fitted)
    return fitted[:MOST_FITTED]


def _standardize(rated: Sequence[LabelledTurn]) -> list[float]:
    """Ratings in standard deviations from their own set's mean: each set has its own scale."""
    by_set: dict[str, list[float]] = {}
    for each in rated:
        by_set.setdefault(each.set_name, []).append(each.rating)
    middle = {name: (float(np.mean(found)), float(np.std(found)) or 1.0) for name, found in by_set.items()}
    return [(each.rating - middle[each.set_name][0]) / middle[each.set_name][1] for each in rated]


# Rounds of labelling, each with this share of the first stage's steps and of its rate. Chosen: PONE goes on with 1e-6
# for many epochs, which in so few steps would change nothing.
PONE_ROUNDS, PONE_SHARE, PONE_RATE = 3, 0.2, 0.1


def train_contextual(name: str, plan: TrainingPlan) -> Trained:
    """Trains contextualised RUBER: random negatives, cross entropy, the step chosen by validation.

    PONE has weighted negatives, and then rounds in which it labels more itself.
    """
    is_pone = name == "pone"
    exchanges, validation = split_validation(plan.parts[0])
    vectors = FrozenVectors(load_encoder(plan.encoder))
    torch.manual_seed(plan.seed)
    network = PairNetwork(vectors.width, is_pone=is_pone)
    network.fit_scale(vectors.of([text for each in exchanges for text in (each.query, each.response)]))
    negatives = RandomNegatives(exchanges, plan.seed)
    if is_pone:
        negatives = WeightedNegatives(exchanges, vectors.unit([each.response for each in exchanges]), plan.seed)
    best = None
    if validation:  # so little data may leave no dialogue to choose by
        together = [*validation, *exchanges]
        drawn = RandomNegatives(together, plan.seed)
        wrong = [together[drawn.draw(index, -1)].response for index in range(len(validation))]
        best = choose_by_auc(network, vectors, validation, wrong, plan.settings("choice"))
    run = partial(train_pair_network, network, exchanges, negatives, vectors)
    run(plan.settings(name), best=best, state_path=plan.state(name))
    facts: dict[str, Any] = {"validation": len(validation), "chosen": {} if best is None else dict(best.found)}
    judge = partial(score_network, network, vectors)
    if is_pone:
        candidates = find_candidates(exchanges, vectors.unit([each.query for each in exchanges]), plan.seed)
        facts["rounds"] = []
        for number in range(1, PONE_ROUNDS + 1):
            extra = filter_candidates(exchanges, candidates, judge)
            counts = {"kept": len(extra), "fitting": sum(each.rating for each in extra), "of": len(candidates)}
            facts["rounds"].append(counts)
            settings = plan.settings(f"pone round {number}", PONE_SHARE, PONE_RATE)
            run(settings, extra=extra, state_path=plan.state(f"pone-round-{number}"))
    # What an export needs: the weights, and the name of their encoder.
    torch.save({"network": network.state_dict(), "encoder": plan.encoder, "is_pone": is_pone}, plan.output / "pair.pt")
    return Trained(PairJudge(name, judge), facts, exchanges=len(exchanges))


Train = Callable[[TrainingPlan], Trained]
TRAINERS: dict[str, Train] = {
    "ruber": train_ruber,
    **{name: partial(train_contextual, name) for name in ("ctx-ruber", "pone")},
    "usr": train_usr,
    "3p": train_annotated,
}
