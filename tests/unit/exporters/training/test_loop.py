"""The training loop: interruption, resumption, and states that are not ours."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from turnscore_exporters.errors import CheckpointError
from turnscore_exporters.training.loop import LoopSettings, choose_batch, run_loop

INPUTS = torch.linspace(-1, 1, 40).reshape(20, 2)


class InterruptionError(Exception):
    pass


def train(state: Path | None, *, stop_at: int | None = None, run_key: str = "a") -> list[Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step_loss(step: int) -> Tensor:
        if step == stop_at:
            raise InterruptionError
        chosen = list(choose_batch(len(INPUTS), 8, step))
        loss: Tensor = (model(INPUTS[chosen]) - INPUTS[chosen].sum(1, keepdim=True)).square().mean()
        return loss

    run_loop(model, optimizer, step_loss, LoopSettings(steps=20, run_key=run_key, warm_up_steps=3, save_every=4), state)
    return [weight.detach() for weight in model.parameters()]


def test_resumed_run_ends_with_the_weights_of_one_that_was_not_interrupted(tmp_path: Path) -> None:
    whole = train(None)
    with pytest.raises(InterruptionError):
        train(tmp_path / "state", stop_at=10)
    resumed = train(tmp_path / "state")
    assert all(torch.equal(left, right) for left, right in zip(whole, resumed, strict=True))


def test_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    first = train(tmp_path / "state")
    again = train(tmp_path / "state", stop_at=0)
    assert all(torch.equal(left, right) for left, right in zip(first, again, strict=True))


def test_state_of_another_run_is_refused(tmp_path: Path) -> None:
    train(tmp_path / "state")
    with pytest.raises(CheckpointError, match="belongs to another run"):
        train(tmp_path / "state", run_key="b")


def test_broken_state_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"half a file")
    with pytest.raises(CheckpointError, match="state: cannot be read"):
        train(tmp_path / "state")


def test_every_epoch_takes_every_item_once_in_another_order() -> None:
    epochs = [[index for step in range(3) for index in choose_batch(20, 8, step + 3 * epoch)] for epoch in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(20))
    assert epochs[0] != epochs[1]
