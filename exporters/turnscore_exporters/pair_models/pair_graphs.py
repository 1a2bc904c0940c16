"""The graphs of relevance and USR: a BERT or RoBERTa with its published head, and the comparison of ctx-RUBER and PONE.

Each computes what the checkpoint computes, under the names and axes that the service uses.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import BertModel

from turnscore_exporters.errors import EncoderError
from turnscore_exporters.graphs.export import EXAMPLE_IDS, ROW_AXES, BertGraph, GraphContract
from turnscore_exporters.pair_models.models import PairCheckpoint, PairNetwork, margin_of, split_model

ROW_INPUTS = {"input_ids": ROW_AXES, "attention_mask": ROW_AXES}
SEGMENTS = "token_type_ids"
APART_CONTRACT = GraphContract(
    inputs={**ROW_INPUTS, "query_row": ("pairs",), "reply_row": ("pairs",)},
    outputs={"probability": ("pairs",)},
    examples=(EXAMPLE_IDS, (EXAMPLE_IDS > 0).long(), torch.tensor([0, 2]), torch.tensor([1, 2])),
)


class _Trunk(BertGraph):
    """A checkpoint's encoder, with positions counted from the left as its rows are padded on the right."""

    places: Tensor

    def __init__(self, encoder: nn.Module, config: Any) -> None:
        super().__init__()
        self.encoder = cast("BertModel", encoder)
        first = int(config.pad_token_id) + 1 if config.model_type == "roberta" else 0
        self.register_buffer("places", torch.arange(first, int(config.max_position_embeddings))[None, :])

    def read(self, input_ids: Tensor, attention_mask: Tensor, segments: Tensor | None) -> Any:
        """The encoder's last hidden state."""
        return self.encoder(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=torch.zeros_like(input_ids) if segments is None else segments,
            position_ids=self.places[:, : input_ids.shape[1]],
        )


class JointGraph(_Trunk):
    """Probability that each row's response fits."""

    def __init__(self, checkpoint: PairCheckpoint) -> None:
        """Raises EncoderError where the head has neither one number nor two classes."""
        model = checkpoint.model
        labels = int(checkpoint.config.num_labels)
        if labels not in (1, 2):
            raise EncoderError(f"checkpoint {checkpoint.name}: its head has {labels} classes, expected one or two")
        is_bert = checkpoint.config.model_type == "bert"
        super().__init__(model.bert if is_bert else model.roberta, checkpoint.config)
        self.head = model.classifier
        self._is_pooled = is_bert

    def forward(self, input_ids: Tensor, attention_mask: Tensor, segments: Tensor | None = None) -> Tensor:
        """[rows], float32."""
        found = self.read(input_ids, attention_mask, segments)
        tokens = found.pooler_output if self._is_pooled else found.last_hidden_state
        return margin_of(self.head(tokens.float())).sigmoid()


class MaskedGraph(_Trunk):
    """Log probability of one token at one place of each row."""

    def __init__(self, checkpoint: PairCheckpoint) -> None:
        trunk, head = split_model(checkpoint.model)
        super().__init__(trunk, checkpoint.config)
        self.head = head
        self._has_segments = checkpoint.has_segments

    def forward(self, input_ids: Tensor, attention_mask: Tensor, *rest: Tensor) -> Tensor:
        """[rows], float32; `rest` holds the segments, where the graph has them, then the places and the tokens."""
        place, token = rest[-2:]
        segments = rest[0] if self._has_segments else None
        tokens = self.read(input_ids, attention_mask, segments).last_hidden_state.float()
        # Sums over the row, as pooling does: the int8 graphs' skipping of padding recognises these.
        is_place = self.places[:, : input_ids.shape[1]] - self.places[:, :1] == place[:, None]
        hidden = (tokens * is_place.unsqueeze(-1).to(tokens.dtype)).sum(1)
        return self.head(hidden).log_softmax(-1).gather(1, token[:, None])[:, 0]  # type: ignore[no-any-return]


class ApartGraph(BertGraph):
    """Probability that each pair's reply fits, of the mean vectors of a frozen BERT; rows are texts."""

    def __init__(self, encoder: BertModel, network: PairNetwork) -> None:
        super().__init__()
        self.encoder = encoder
        self.network = network

    def forward(self, input_ids: Tensor, attention_mask: Tensor, query_row: Tensor, reply_row: Tensor) -> Tensor:
        """[pairs], float32."""
        segments = torch.zeros_like(input_ids)
        found = self.encoder(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=segments)
        tokens = found.last_hidden_state.float()
        mask = attention_mask.unsqueeze(-1).to(tokens.dtype)
        vectors = (tokens * mask).sum(1) / mask.sum(1).clamp_min(1.0)
        return self.network(vectors[query_row], vectors[reply_row]).sigmoid()  # type: ignore[no-any-return]


def joint_contract(checkpoint: PairCheckpoint) -> GraphContract:
    examples = (EXAMPLE_IDS, (EXAMPLE_IDS > 0).long())
    inputs: dict[str, tuple[str, ...]] = dict(ROW_INPUTS)
    if checkpoint.has_segments:
        inputs[SEGMENTS] = ROW_AXES
        examples = (*examples, torch.zeros_like(EXAMPLE_IDS))  # type: ignore[assignment]
    return GraphContract(inputs=inputs, outputs={"probability": ("rows",)}, examples=examples)


def masked_contract(checkpoint: PairCheckpoint) -> GraphContract:
    joint = joint_contract(checkpoint)
    return GraphContract(
        inputs={**joint.inputs, "place": ("rows",), "token": ("rows",)},
        outputs={"log_probability": ("rows",)},
        examples=(*joint.examples, torch.tensor([1, 0, 1]), torch.tensor([3, 4, 5])),
    )
