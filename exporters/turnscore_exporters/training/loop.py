"""The one training loop: steps, learning-rate schedule, progress bar, states to resume from, and the files of a run."""

import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from turnscore_exporters.errors import CheckpointError, ExporterError
from turnscore_exporters.json_files import read_json, write_json

LOOKS = 20  # How often, at most, a training that keeps its best weights looks at them.

StepLoss = Callable[[int], Tensor]


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """How long to train and how. `run_key` names the run: the state of another run is refused.

    The learning rate rises linearly over the warm-up, then falls linearly to 2 % unless `decays` is false.
    """

    steps: int
    run_key: str
    seed: int = 0
    warm_up_steps: int = 50
    decays: bool = True
    save_every: int = 50
    description: str = "training"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW


class WeightAverage:
    """The exponential average of a model's floating-point weights from one step on: steadier than the last weights."""

    def __init__(self, decay: float, first_step: int) -> None:
        self._decay = decay
        self._first_step = first_step
        self._weights: dict[str, Tensor] = {}

    def update(self, model: nn.Module, step: int) -> None:
        """Adds the weights after `step`."""
        if step < self._first_step:
            return
        for name, weight in model.state_dict().items():
            if name in self._weights and weight.dtype.is_floating_point:
                self._weights[name].lerp_(weight, 1 - self._decay)
            else:
                self._weights[name] = weight.detach().clone()

    def put_into(self, model: nn.Module) -> None:
        """Replaces the model's weights by their average, if there is one."""
        if self._weights:
            model.load_state_dict(self._weights)

    def state_dict(self) -> dict[str, Tensor]:
        return self._weights

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._weights = dict(state)


class BestWeights:
    """The weights of the step, of those looked at, at which `measure` found most; the first of several alike."""

    def __init__(self, measure: Callable[[], float], steps: int, looks: int = LOOKS) -> None:
        """Looks that often at most in so many `steps`. `measure` draws nothing and leaves the model as it was."""
        self._measure = measure
        self._every = max(1, math.ceil(steps / looks))
        self._weights: dict[str, Tensor] = {}
        self._found: dict[str, float] = {}

    @property
    def found(self) -> Mapping[str, float]:
        """`value` and `step` (from 1) of the kept weights; empty before the first look."""
        return self._found

    def update(self, model: nn.Module, step: int) -> None:
        """Looks at the weights after `step`, if it is their turn."""
        if (step + 1) % self._every:
            return
        value = self._measure()
        if value > self._found.get("value", -math.inf):
            self._found = {"value": value, "step": step + 1}
            self._weights = {name: weight.detach().clone() for name, weight in model.state_dict().items()}

    def put_into(self, model: nn.Module) -> None:
        """Replaces the model's weights by the best ones, if any were looked at."""
        if self._weights:
            model.load_state_dict(self._weights)

    def state_dict(self) -> dict[str, Any]:
        return {"weights": self._weights, "found": self._found}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._weights, self._found = dict(state["weights"]), dict(state["found"])


def train(
    model: nn.Module,
    step_loss: StepLoss,
    settings: LoopSettings,
    *,
    groups: Sequence[Mapping[str, Any]] | None = None,
    state_path: Path | None = None,
    follower: WeightAverage | BestWeights | None = None,
) -> list[float]:
    """Trains in place and returns the loss of every step of this call; then the model scores, and nothing is frozen.

    `step_loss(step)` must depend on nothing but the step and the weights: torch is seeded from (seed, step) before each
    call, so a run that was interrupted and resumes from `state_path` ends with the same weights as one that was not.
    The state is written every `save_every` steps and at the end; a finished state makes the call return at once.
    `groups` are weights with a learning rate `lr` of their own; by default all that are not frozen have the settings'.
    `follower` gives the weights that count at the end, in place of the last ones.
    """
    trained = groups or [{"params": [each for each in model.parameters() if each.requires_grad]}]
    optimizer = settings.optimizer(
        trained, lr=settings.learning_rate, betas=settings.betas, weight_decay=settings.weight_decay
    )
    model.train()
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate_at(step, settings))
    parts: dict[str, Any] = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    if follower is not None:
        parts["follower"] = follower
    first = _load_state(parts, settings, state_path)
    losses: list[float] = []
    with tqdm(total=settings.steps, initial=first, desc=settings.description, unit="step") as bar:
        for step in range(first, settings.steps):
            torch.manual_seed(settings.seed * 1_000_003 + step)
            loss = step_loss(step)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            if follower is not None:
                follower.update(model, step)
            losses.append(float(loss.detach()))
            bar.set_postfix(loss=f"{losses[-1]:.3f}", refresh=False)
            bar.update()
            if (step + 1) % settings.save_every == 0 or step + 1 == settings.steps:
                _save_state(parts, settings, state_path, step + 1)
    if follower is not None:
        follower.put_into(model)
    model.requires_grad_(True).eval()
    return losses


def _rate_at(step: int, settings: LoopSettings) -> float:
    """The share of the learning rate at a step."""
    rise = min(1.0, (step + 1) / max(1, settings.warm_up_steps))
    return rise * max(0.02, 1 - step / max(1, settings.steps)) if settings.decays else rise


def _load_state(parts: dict[str, Any], settings: LoopSettings, path: Path | None) -> int:
    if path is None or not path.exists():
        return 0
    try:
        state = torch.load(path, weights_only=True)
    except Exception as error:
        raise CheckpointError(f"{path}: cannot be read ({error}); delete it to start over") from error
    if state["run_key"] != settings.run_key:
        raise CheckpointError(f"{path}: belongs to another run ({state['run_key']}); delete it or take another folder")
    if missing := parts.keys() - state.keys():
        raise CheckpointError(
            f"{path}: another version of this training wrote it (no {', '.join(sorted(missing))}); delete it"
        )
    for name, part in parts.items():
        part.load_state_dict(state[name])
    return int(state["step"])


def _save_state(parts: dict[str, Any], settings: LoopSettings, path: Path | None, step: int) -> None:
    if path is None:
        return
    state = {name: part.state_dict() for name, part in parts.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    torch.save({**state, "run_key": settings.run_key, "step": step}, partial)
    partial.replace(path)


def choose_batch(items: int, batch_size: int, step: int, seed: int = 0) -> Sequence[int]:
    """The item numbers of one step: epochs in random order; the last batch of an epoch may be short."""
    batches = -(-items // batch_size)
    epoch, index = divmod(step, batches)
    order = torch.randperm(items, generator=torch.Generator().manual_seed(seed * 1_000_003 + epoch))
    chosen: list[int] = order[index * batch_size : (index + 1) * batch_size].tolist()
    return chosen


REPORT_FILE, TRAINING_FILE, STATE_FOLDER = "report.json", "training.json", "state"
DATA_SUFFIXES = (".gz", ".jsonl", ".csv", ".txt")


def describe_run(command: str, **facts: Any) -> dict[str, Any]:
    """A training's record for the manifest: the facts, the command, the day, and what it ran on."""
    return {
        **facts,
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def claim_folder(output: Path, data: Path) -> None:
    """Notes what data the training in the folder is on, as it may go on from a state there.

    ExporterError where it began with files of the same names and other lengths, such as those of the sample.
    """
    # Below the state folder: the data files that the training began with, and their bytes.
    place = output / STATE_FOLDER / "data.json"
    known = read_json(place)
    files = (path for path in sorted(data.rglob("*")) if path.suffix in DATA_SUFFIXES and output not in path.parents)
    found = {str(path.relative_to(data)): path.stat().st_size for path in files}
    changed = sorted(name for name in known.keys() & found.keys() if known[name] != found[name])
    if changed:
        raise ExporterError(f"{output}: holds a training on another {changed[0]}; choose another folder")
    if found:
        write_json(place, {**known, **found})


def claim_choices(place: Path, choices: Mapping[str, object]) -> None:
    """Notes what a folder's figures are of in that file; ExporterError where it says otherwise."""
    known = read_json(place)
    if known and known != choices:
        said = ", ".join(f"{name} {value}" for name, value in known.items())
        raise ExporterError(f"{place}: the figures there are of {said}; choose another folder")
    write_json(place, choices)
