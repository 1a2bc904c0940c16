"""How contextualised RUBER and PONE are trained: one network over a frozen encoder's vectors. Measures nothing."""

from collections.abc import Sequence
from typing import Any

import torch

from turnscore_exporters.baselines.encoders.text_vectors import FrozenVectors
from turnscore_exporters.baselines.material.exchanges import Exchange, split_validation
from turnscore_exporters.baselines.material.samplers import RandomNegatives, ReplyPool, WeightedNegatives
from turnscore_exporters.baselines.plan import Plan, Trained
from turnscore_exporters.baselines.systems import contextual
from turnscore_exporters.baselines.systems.contextual import Contextual, Judgement, PairNetwork
from turnscore_exporters.baselines.systems.pone import filter_candidates, find_candidates
from turnscore_exporters.training.encoders import load_encoder
from turnscore_exporters.training.loop import BestWeights

PONE_ROUNDS, PONE_SHARE, PONE_RATE = 3, 0.2, 0.1
"""Rounds of labelling, each with this share of the first stage's steps and of its rate. Chosen: PONE goes on with 1e-6
for many epochs, which in so few steps would change nothing."""


def train_contextual(plan: Plan) -> Trained:
    """Trains contextualised RUBER: random negatives, cross entropy, the step chosen by validation."""
    exchanges, validation = split_validation(plan.train)
    vectors = FrozenVectors(load_encoder(plan.encoder))
    network = _start_pair_network(exchanges, vectors, plan.seed, is_pone=False)
    negatives = RandomNegatives(ReplyPool(exchanges), plan.seed)
    best = _choose_step(plan, network, vectors, exchanges, validation)
    _run_contextual(plan, network, exchanges, negatives, vectors, "ctx-ruber", best=best)
    save_pair_network(plan, network, is_pone=False)
    baseline = Contextual(name="ctx-ruber", network=network, vectors=vectors)
    return Trained(baseline, _describe_choice(best, validation), exchanges=len(exchanges))


def train_pone(plan: Plan) -> Trained:
    """Trains PONE: weighted negatives, the step chosen by validation, then rounds in which it labels more itself."""
    exchanges, validation = split_validation(plan.train)
    vectors = FrozenVectors(load_encoder(plan.encoder))
    network = _start_pair_network(exchanges, vectors, plan.seed, is_pone=True)
    pool = ReplyPool(exchanges)
    negatives = WeightedNegatives(pool, vectors.unit([each.reply for each in exchanges]), seed=plan.seed)
    best = _choose_step(plan, network, vectors, exchanges, validation)
    _run_contextual(plan, network, exchanges, negatives, vectors, "pone", best=best)
    candidates = find_candidates(pool, vectors.unit([each.query for each in exchanges]), plan.seed)
    kept = []
    for number in range(PONE_ROUNDS):
        extra = filter_candidates(
            exchanges, candidates, lambda pairs: contextual.score_network(network, vectors, pairs)
        )
        kept.append({"kept": len(extra), "fitting": sum(each.fits for each in extra), "of": len(candidates)})
        _run_contextual(plan, network, exchanges, negatives, vectors, f"pone round {number + 1}", extra=extra)
    save_pair_network(plan, network, is_pone=True)
    baseline = Contextual(name="pone", network=network, vectors=vectors)
    return Trained(baseline, {**_describe_choice(best, validation), "rounds": kept}, exchanges=len(exchanges))


def _start_pair_network(
    exchanges: Sequence[Exchange], vectors: FrozenVectors, seed: int, *, is_pone: bool
) -> PairNetwork:
    torch.manual_seed(seed)
    network = PairNetwork(vectors.width, is_pone=is_pone)
    network.fit_scale(vectors.of([text for each in exchanges for text in (each.query, each.reply)]))
    return network


def _choose_step(
    plan: Plan,
    network: PairNetwork,
    vectors: FrozenVectors,
    exchanges: Sequence[Exchange],
    validation: Sequence[Exchange],
) -> BestWeights | None:
    """None where so little data leaves no dialogue to choose by."""
    if not validation:
        return None
    together = [*validation, *exchanges]
    negatives = RandomNegatives(ReplyPool(together), plan.seed)
    wrong = [together[negatives.draw(index, -1)].reply for index in range(len(validation))]
    return contextual.choose_by_auc(network, vectors, validation, wrong, plan.settings("choice"))


def _describe_choice(best: BestWeights | None, validation: Sequence[Exchange]) -> dict[str, Any]:
    return {"validation": len(validation), "chosen": {} if best is None else dict(best.found)}


def _run_contextual(
    plan: Plan,
    network: PairNetwork,
    exchanges: Sequence[Exchange],
    negatives: RandomNegatives | WeightedNegatives,
    vectors: FrozenVectors,
    name: str,
    *,
    extra: Sequence[Judgement] | None = None,
    best: BestWeights | None = None,
) -> None:
    """Runs the first stage, or a round with the `extra` judgements."""
    is_round = extra is not None
    contextual.train_network(
        network,
        exchanges,
        negatives,
        vectors,
        plan.settings(name, PONE_SHARE if is_round else 1.0),
        learning_rate=plan.size.learning_rate * (PONE_RATE if is_round else 1.0),
        extra=extra or (),
        best=best,
        state_path=plan.state(name.replace(" ", "-")),
    )


def save_pair_network(plan: Plan, network: PairNetwork, *, is_pone: bool) -> None:
    """Writes what an export needs: the weights, and the name of their encoder."""
    plan.output.mkdir(parents=True, exist_ok=True)
    torch.save({"network": network.state_dict(), "encoder": plan.encoder, "is_pone": is_pone}, plan.output / "pair.pt")
