"""The baselines by name: how each is trained from the data. Measures nothing."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from turnscore_assessment.data.rated_turns import DAILYDIALOG, RatedTurn, read_rated_turns, read_thumbs

from turnscore_exporters.baselines.encoders.checkpoints import load_masked_model, load_pair_model
from turnscore_exporters.baselines.encoders.text_vectors import FrozenVectors
from turnscore_exporters.baselines.encoders.word_vectors import FileVectors, PieceVectors, WordVectors
from turnscore_exporters.baselines.material.asked import Asked, Baseline
from turnscore_exporters.baselines.material.exchanges import (
    Exchange,
    Part,
    read_exchanges,
    split_exchanges,
    split_validation,
    split_words,
)
from turnscore_exporters.baselines.material.leaks import without_judged
from turnscore_exporters.baselines.material.samplers import RandomNegatives, ReplyPool, WeightedNegatives
from turnscore_exporters.baselines.sizes import Size
from turnscore_exporters.baselines.systems import contextual, joint, masked, ruber, usr
from turnscore_exporters.baselines.systems.contextual import Contextual, Judgement, PairNetwork
from turnscore_exporters.baselines.systems.networks import RuberNetwork
from turnscore_exporters.baselines.systems.pone import filter_candidates, find_candidates
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.json_files import write_json
from turnscore_exporters.training.encoders import load_encoder
from turnscore_exporters.training.loop import BestWeights, LoopSettings

TEXT_FILE, RATINGS_FILE, THUMBS_FILE = "dialogue_text.jsonl.gz", "turn_ratings.jsonl.gz", "convai2017.jsonl.gz"
FORMULA_FILE = "overall.json"
SCALE_EXCHANGES = 2000
"""Training exchanges that a scale is fitted on. Chosen."""
MOST_FITTED = 300
"""Rated turns that fit USR's two weights. Chosen: it reads a turn some fifteen times."""
PONE_ROUNDS, PONE_SHARE, PONE_RATE = 3, 0.2, 0.1
"""Rounds of labelling, each with this share of the first stage's steps and of its rate. Chosen: PONE goes on with 1e-6
for many epochs, which in so few steps would change nothing."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a training is given."""

    data: Path
    output: Path
    size: Size
    encoder: str = "minilm-l6"
    words: Path | None = None
    seed: int = 0
    judged: Sequence[Asked] = field(default_factory=tuple)
    """Judged turns that no training may have seen."""

    def state(self, name: str) -> Path:
        """The state file from which an interrupted training resumes."""
        return self.output / "state" / f"{name}.state"

    def settings(self, name: str, share: float = 1.0) -> LoopSettings:
        """The settings of a loop with this share of the steps; a state of other settings is refused."""
        steps = max(1, round(share * self.size.steps))
        key = f"{name} {self.encoder} {self.words} {self.size} {share} seed {self.seed}"
        return LoopSettings(steps=steps, run_key=key, seed=self.seed, description=name)

    @cached_property
    def parts(self) -> Mapping[Part, list[Exchange]]:
        """The exchanges of the data, without those that share a text with a judged turn."""
        drawn = read_exchanges(self.data / TEXT_FILE, self.size.exchanges, self.seed)
        return split_exchanges(without_judged(drawn, self.judged))

    @property
    def train(self) -> list[Exchange]:
        return self.parts[Part.TRAIN]

    def word_vectors(self, texts: Sequence[str]) -> WordVectors:
        """The file's vectors for these texts' words and the judged turns'; else the encoder's word table."""
        if self.words is None:
            return PieceVectors(load_encoder(self.encoder))
        asked = [text for each in self.judged for text in (*each.context, each.response, *each.references)]
        return FileVectors(self.words, {word for text in (*texts, *asked) for word in split_words(text)})


@dataclass(frozen=True)
class Trained:
    """A trained baseline and what the report says of its training."""

    baseline: Baseline
    facts: Mapping[str, Any]
    seen: frozenset[str] = frozenset()
    """Judged dialogues that were trained on, which it is not tested on."""
    exchanges: int = 0
    """How many exchanges it was trained on, if any."""


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
