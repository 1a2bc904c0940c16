"""The bundle of `reaction`: heads for user turns on the features of a bundle of quality, trained on and calibrated.

The encoder stays as it is served, so its features are computed once, and the heads train in seconds.
Probabilities are those of a turn drawn at random. A third of the judged turns was drawn by words that make a signal
likely, so each signal's bias is moved by the difference of its log odds.
"""

import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from pydantic import JsonValue
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from torch import Tensor, nn
from torch.nn import functional
from turnscore_assessment.data import dialogues
from turnscore_assessment.data.dialogues import LabelledTurn
from turnscore_assessment.figures import Floats, compute_spearman
from turnscore_core.inference.devices import usable_cpus
from turnscore_core.loaded_scorer import choose_variant, load_scorer
from turnscore_core.scorers.quality import logits_of
from turnscore_core.scorers.reaction import REACTIONS, SIGNALS, Reaction, ReactionOptions, ReactionScorer
from turnscore_core.scoring import score_turns
from turnscore_models.bundle import Bundle, sha256_of
from turnscore_models.manifest import SharedFiles
from turnscore_models.store import resolve

from turnscore_exporters.bundles.self_test import check_empty, write_self_test
from turnscore_exporters.bundles.writer import MIN_PARITY_TURNS, calibrate, write_draft
from turnscore_exporters.calibration.recalibration import fit_probability
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.json_files import write_json
from turnscore_exporters.options import ReactionExportOptions
from turnscore_exporters.quality.bundle import read_heads, serve_features, write_head_set
from turnscore_exporters.quality.drills import make_user_turn

KIND = "reaction"
FITTED_ON = ("choose", "calibrate")
RANDOM = "random"  # How a turn was drawn that shows how rare signals are.
# Of a threshold's F-beta, where it is not 1: a call for a person that is missed costs more than a needless answer.
_BETAS = {"asks_for_a_person": 2.0}


@dataclass(frozen=True, kw_only=True)
class HeadRecipe:
    """How heads are trained. Chosen on the part `choose` and on turns to help desks."""

    epochs: int = 8
    batch: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 0.05
    dropout: float = 0.2
    help_desk_share: float = 0.5  # made-up turns for each judged one


class UserTurnHeads(nn.Module):
    """The heads for user turns of a bundle of quality, from their graph. Raises ExporterError for any other graph."""

    def __init__(self, file: Path, dropout: float) -> None:
        super().__init__()
        stored = {name: torch.from_numpy(value.copy()) for name, value in read_heads(file).items()}
        if missing := {f"reaction_{part}.{kind}" for part in ("hidden", "head") for kind in ("weight", "bias")} - set(
            stored
        ):
            raise ExporterError(f"{file}: holds no {', '.join(sorted(missing))}, so its heads cannot be trained on")
        units, columns = stored["reaction_hidden.weight"].shape
        self.reaction_hidden, self.reaction_head = nn.Linear(columns, units), nn.Linear(units, len(REACTIONS))
        self.load_state_dict({name: stored[name] for name in self.state_dict()})
        self.dropout = nn.Dropout(dropout)

    def react(self, features: Tensor) -> Tensor:
        """Outputs [turns, heads] before the sigmoid."""
        hidden = functional.gelu(self.reaction_hidden(self.dropout(features)))
        found: Tensor = self.reaction_head(self.dropout(hidden))
        return found

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:
        """Probabilities [turns] of each head."""
        return self.react(features).sigmoid().unbind(1)


def export_reaction(options: ReactionExportOptions) -> Bundle:
    """Writes the bundle into the empty or missing folder `output`; the encoder stays in the bundle of quality.

    The heads start from those of a bundle of quality before its thresholds, or of reaction. Raises ExporterError where
    it has none, or the folder is in use.
    """
    older = resolve(options.bundle)
    if KIND not in older.manifest.heads:
        raise ExporterError(
            f"{older.manifest.reference} has no heads for user turns; name a bundle of reaction, or of quality as it "
            "was exported"
        )
    check_empty(options.output)
    judged = list(dialogues.read_judged_user_turns(options.data / dialogues.USER_TURNS_FILE))
    fitted = [turn for turn in judged if turn.split in FITTED_ON]
    report = [turn for turn in judged if turn.split == "report"]
    reference = dialogues.draw_turns(dialogues.read_population(options.data).turns_of("user"), options.turns, seed=0)
    layout = {"layout": older.manifest.options["layout"]}
    as_read: JsonValue = {name: {"slope": 1.0, "bias": 0.0} for name in REACTIONS}
    described: dict[str, JsonValue] = {**layout, "calibrated": as_read, "thresholds": {}}
    recipe = HeadRecipe()
    draft = _write(older, options, described)
    trained_on = [*(turn for turn in judged if turn.split == "train"), *make_help_desk(options.data, judged, recipe)]
    draft = _train(draft, trained_on, recipe)
    found = score_user_turns(draft, [*fitted, *report, *reference])
    first, rest = len(fitted), len(fitted) + len(report)
    ready = ReactionOptions.model_validate({**layout, **fit_reaction(found[:first], fitted, judged)})
    calibrated = ready.calibrate(found)
    agreement = measure_reaction(calibrated[first:rest], report, ready.thresholds)
    counted = f"{dialogues.STATED}: {len(reference)} of the user turns before them"
    source = f"{counted}; values of the graph {choose_variant(draft)}"
    write_json(draft.path_of(draft.manifest.calibration), calibrate(calibrated[rest:, 0].tolist(), source))
    manifest = draft.manifest.model_copy(
        update={"options": ready.model_dump(mode="json"), "agreement": {"report": agreement}}
    )
    return write_self_test(draft, manifest, draft.self_test())


def make_help_desk(folder: Path, judged: Sequence[LabelledTurn], recipe: HeadRecipe) -> list[LabelledTurn]:
    """Made-up turns to help desks, after responses of the part `train`."""
    generator = random.Random(0)  # noqa: S311
    files = [folder / name for name in (dialogues.TURNS_FILE, dialogues.MODERN_FILE) if (folder / name).exists()]
    kinds = [
        [each for each in dialogues.read_judged_contexts(file) if each and each[0].split == "train"] for file in files
    ]
    kinds = [each for each in kinds if each]
    count = int(recipe.help_desk_share * len(judged)) if kinds else 0
    return [make_user_turn(generator.choice(generator.choice(kinds)), generator) for _ in range(count)]


def _train(draft: Bundle, turns: Sequence[LabelledTurn], recipe: HeadRecipe) -> Bundle:
    """The bundle with its heads trained on these turns."""
    loaded = load_scorer(draft, choose_variant(draft), threads=usable_cpus())
    scorer = cast("ReactionScorer", loaded.scorer)
    asked = [loaded.scorer.trim(turn.to_score()) for turn in turns]
    found, packs = serve_features(scorer, asked)
    order = sorted(range(len(turns)), key=lambda place: packs[place].width)
    features = torch.from_numpy(found[order])
    wanted = torch.tensor([[turns[k].labels["satisfaction"], *shown_by([turns[k]])[0]] for k in order])
    spec = draft.manifest.heads[KIND]
    file = draft.path_of(spec.file)
    heads = UserTurnHeads(file, recipe.dropout)
    train_heads(heads, features, wanted.float(), recipe)
    parity = write_head_set(heads.eval(), REACTIONS, features[:MIN_PARITY_TURNS], file)
    made = spec.model_copy(update={"sha256": sha256_of(file), "parity_measured": parity})
    return write_self_test(draft, draft.manifest.model_copy(update={"heads": {KIND: made}}), draft.self_test())


def train_heads(heads: UserTurnHeads, features: Tensor, wanted: Tensor, recipe: HeadRecipe) -> None:
    """Trains the heads in place, to the average of where they started and of the mean weights of the latter half."""
    torch.manual_seed(0)
    weights = list(heads.parameters())
    start = [each.detach().clone() for each in weights]
    mean, count = [torch.zeros_like(each) for each in start], 0
    optimizer = torch.optim.AdamW(weights, lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    steps = recipe.epochs * -(-len(features) // recipe.batch)
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    heads.train()
    for step in range(steps):
        batch = step % (steps // recipe.epochs)
        if batch == 0:
            drawn = torch.split(torch.randperm(len(features)), recipe.batch)
        each = functional.binary_cross_entropy_with_logits(
            heads.react(features[drawn[batch]]), wanted[drawn[batch]], reduction="none"
        ).mean(0)
        optimizer.zero_grad()
        torch.autograd.backward(2 * each[0] + each[1:].sum())
        optimizer.step()
        decay.step()
        if step >= steps // 2:
            count += 1
            for kept, weight in zip(mean, weights, strict=True):
                kept += (weight.detach() - kept) / count
    with torch.no_grad():
        for weight, kept, first in zip(weights, mean, start, strict=True):
            weight.copy_((kept + first) / 2)


def _write(older: Bundle, options: ReactionExportOptions, described: Mapping[str, JsonValue]) -> Bundle:
    """A bundle of these heads as they are, with a self-test and percentiles that say nothing yet."""
    manifest = older.manifest
    graphs = [file for graph in manifest.graphs.values() for file in graph.files]
    heads = manifest.heads[KIND]
    own = options.output / heads.file
    own.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(older.path_of(heads.file), own)
    update = {
        "name": KIND,
        "kind": KIND,
        "version": options.version,
        "heads": {KIND: heads},
        "shared": manifest.shared or SharedFiles(bundle=manifest.name, files=[*graphs, manifest.tokenizer]),
        "options": dict(described),
        "training": {
            "init_from": f"the heads for user turns of {manifest.reference}",
            "data": ["judged_user_turns.jsonl.gz", "help-desk turns made up after judged responses"],
            "recipe": asdict(HeadRecipe()),
            "command": f"turnscore export reaction --bundle {manifest.name} --data DATA --version {options.version}"
            + (f" --turns {options.turns}" if options.turns else ""),
        },
        "agreement": {},
        "threshold": None,
        "good_threshold": None,
    }
    made = write_draft(options.output, manifest.model_copy(update=update), older.lenders or [older.folder])
    return write_self_test(made, made.manifest, made.self_test())


def score_user_turns(bundle: Bundle, turns: Sequence[LabelledTurn]) -> Floats:
    """Satisfaction and signals [turns, heads], as the service gives them."""
    loaded = load_scorer(bundle, choose_variant(bundle), threads=usable_cpus())
    raw = score_turns(loaded, [turn.to_score() for turn in turns])
    return np.array([[each.value, *(each.details[name] for name in SIGNALS)] for each in raw])


def fit_reaction(found: Floats, turns: Sequence[LabelledTurn], judged: Sequence[LabelledTurn]) -> dict[str, JsonValue]:
    """Calibration and thresholds from the heads [turns, heads] of these turns.

    One slope serves all signals: of some there are a handful. A threshold is the one that would give the greatest F
    if the probabilities of these turns were right, which they say themselves without their few positives.
    `judged` are all judged turns, whose random part says how rare a signal is.
    """
    logits = logits_of(found)
    curve = fit_probability(logits[:, 0], np.array([turn.labels["satisfaction"] for turn in turns]))
    calibrated: dict[str, JsonValue] = {"satisfaction": {"slope": round(curve[0], 4), "bias": round(curve[1], 4)}}
    shown = shown_by(turns)
    places = np.kron(np.eye(len(SIGNALS)), np.ones((len(turns), 1)))
    design = np.hstack([logits[:, 1:].T.reshape(-1, 1), places])
    model = LogisticRegression(C=10.0, fit_intercept=False, max_iter=5000).fit(design, shown.T.ravel())
    slope, biases = model.coef_[0, 0], model.coef_[0, 1:]
    thresholds: dict[str, JsonValue] = {}
    drawn = shown_by([turn for turn in judged if turn.system == RANDOM])
    for place, name in enumerate(SIGNALS):
        rarer = _log_odds(drawn[:, place]) - _log_odds(shown[:, place])
        here = 1 / (1 + np.exp(-(slope * logits[:, 1 + place] + biases[place])))
        least = _best_threshold(here, _BETAS.get(name, 1.0))
        thresholds[name] = round(float(1 / (1 + np.exp(-(np.log(least / (1 - least)) + rarer)))), 4)
        calibrated[name] = {"slope": round(float(slope), 4), "bias": round(float(biases[place] + rarer), 4)}
    return {"calibrated": calibrated, "thresholds": thresholds}


def shown_by(turns: Sequence[LabelledTurn]) -> Floats:
    """Which signals each turn shows: 0 or 1 [turns, signals]."""
    return np.array([[turn.labels.get(name, 0.0) for name in SIGNALS] for turn in turns])


def _log_odds(shown: Floats) -> float:
    share = (shown.sum() + 0.5) / (len(shown) + 1)
    return float(np.log(share / (1 - share)))


def _best_threshold(probabilities: Floats, beta: float) -> float:
    """Where a further turn no longer raises the F-beta that they promise."""
    falling = np.sort(probabilities)[::-1]
    weight = beta**2
    promised = (1 + weight) * np.cumsum(falling) / (weight * falling.sum() + np.arange(1, len(falling) + 1))
    return float(np.clip(promised.max() / (1 + weight), 0.02, 0.98))


def measure_reaction(
    found: Floats, turns: Sequence[LabelledTurn], thresholds: Mapping[Reaction, float]
) -> dict[str, JsonValue]:
    """Spearman of the satisfaction, F1 of each signal at its threshold, and how many turns show it."""
    shown = shown_by(turns)
    satisfied = [turn.labels["satisfaction"] for turn in turns]
    f1: dict[str, JsonValue] = {
        name: round(float(f1_score(shown[:, place], found[:, 1 + place] >= thresholds[name], zero_division=0)), 4)
        for place, name in enumerate(SIGNALS)
    }
    return {
        "turns": len(turns),
        "satisfaction_spearman": round(compute_spearman(found[:, 0], satisfied), 4),
        "f1": f1,
        "shown": {name: int(count) for name, count in zip(SIGNALS, shown.sum(0), strict=True)},
    }
