import pytest
import torch
from support.exporter_data import save_tiny_dialogpt
from turnscore_core.scorers.fed.batch import Branch, Conversation, FedBatch, build_tree
from turnscore_exporters.fed.bundle import measure_losses
from turnscore_exporters.fed.model import FedModel, load_checkpoint

TRUNK = (0, 40, 41, 42, 0, 50, 51, 0, 60, 61, 62, 63, 0)
FOLLOW_UPS = [[70, 71, 72], [70, 73, 74, 75], [80, 81]]


@pytest.mark.parametrize("sharpness", [1, 12])
def test_unseen_tokens_change_no_loss_however_high_they_score(tmp_path, sharpness):
    checkpoint = load_checkpoint(str(save_tiny_dialogpt(tmp_path, positions=64)))
    with torch.no_grad():
        for block in checkpoint.model.transformer.h:
            block.attn.c_attn.weight[:, :64] *= sharpness  # the queries
    tree = build_tree(FOLLOW_UPS)
    starts = [5, 8, 13]
    batch = FedBatch([Conversation(TRUNK, tuple(Branch(each, (), tree) for each in starts), False)], pad_id=0)
    with torch.inference_mode():
        losses = FedModel(checkpoint.model)(**{name: torch.from_numpy(each) for name, each in batch.feeds().items()})
    for start, found in zip(starts, batch.read_losses(losses.numpy()), strict=True):
        expected = [measure_losses(checkpoint, TRUNK[:start], each)["response_only"] for each in FOLLOW_UPS]
        assert tree.response_losses(found.tree) == pytest.approx(expected, abs=1e-4)
