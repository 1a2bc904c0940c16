"""Exports a published sentence encoder as a bundle of kind encoder: a BERT and the pooling that its folder asks for.

Its value is the cosine of a response and the text before it: parity and percentiles are taken over real turns.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import BertModel
from turnscore_core.scorers.encoder import TextEncoder
from turnscore_models.bundle import Bundle

from turnscore_exporters.bundles.checkpoint import Checkpoint, export_checkpoint, score_as_pairs, write_graphs
from turnscore_exporters.bundles.writer import turns_of
from turnscore_exporters.data.pairs import choose_reference_turns
from turnscore_exporters.errors import EncoderError
from turnscore_exporters.graphs.export import EXAMPLE_IDS, ROW_AXES, BertGraph, GraphContract, average_tokens
from turnscore_exporters.json_files import read_json
from turnscore_exporters.options import TextEncoderExportOptions
from turnscore_exporters.training.encoders import SHORT_NAMES, Encoder, TextVectors, load_encoder

CONTRACT = GraphContract(
    inputs={"input_ids": ROW_AXES, "attention_mask": ROW_AXES},
    outputs={"vector": ("rows", "")},
    examples=(EXAMPLE_IDS, (EXAMPLE_IDS > 0).long()),
)
_MODULES_FILE = "modules.json"
# Modules of sentence-transformers that can be exported; others would compute something that the graph does not.
_KNOWN_MODULES = ("Transformer", "Pooling", "Normalize")


Pooling = Literal["mean", "cls"]  # How token vectors become a text's vector; padding never counts.


class TextEncoderModel(BertGraph):
    """Vectors [rows, width] of token ids [rows, tokens], before they are scaled to length 1."""

    def __init__(self, encoder: BertModel, pooling: Pooling) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = pooling

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """One vector a row, float32."""
        tokens = self.read_tokens(input_ids, attention_mask)
        return tokens[:, 0] if self.pooling == "cls" else average_tokens(tokens, attention_mask)


def find_pooling(name: str) -> Pooling:
    """The pooling that the folder's sentence-transformers files ask for; the mean where it has none.

    Raises EncoderError where they ask for an unknown pooling, or for another module.
    """
    folder = Path(SHORT_NAMES[name]() if name in SHORT_NAMES else name)
    if not (folder / _MODULES_FILE).is_file():
        return "mean"
    modules: Any = read_json(folder / _MODULES_FILE)
    kinds = {str(module["type"]).rpartition(".")[2]: str(module["path"]) for module in modules}
    if unknown := kinds.keys() - set(_KNOWN_MODULES):
        raise EncoderError(f"encoder {name}: has the module {', '.join(sorted(unknown))}, which cannot be exported")
    if "Pooling" not in kinds:
        return "mean"
    asked = read_json(folder / kinds["Pooling"] / "config.json")
    chosen = sorted(key for key, is_on in asked.items() if key.startswith("pooling_mode_") and is_on is True)
    if chosen == ["pooling_mode_mean_tokens"]:
        return "mean"
    if chosen == ["pooling_mode_cls_token"]:
        return "cls"
    raise EncoderError(f"encoder {name}: pools by {', '.join(chosen) or 'nothing'}; only mean and cls can be exported")


def compare_pairs(model: TextEncoderModel, encoder: Encoder, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """The cosine of each pair's texts; where the first text is empty, that of the second with itself."""
    vectors = TextVectors(encoder, lambda *rows: torch.nn.functional.normalize(model(*rows), dim=1))
    texts = [query if query.strip() else reply for query, reply in pairs] + [reply for _, reply in pairs]
    found = vectors.of(texts)
    return (found[: len(pairs)] * found[len(pairs) :]).sum(1).tolist()


def export_text_encoder(options: TextEncoderExportOptions) -> Bundle:
    """Writes the bundle as `export_checkpoint` does."""
    reference = choose_reference_turns(options.data, options.dialogues or [], options.turns)
    encoder = load_encoder(options.encoder, options.token_limit)
    pooling = options.pooling or find_pooling(options.encoder)
    model = TextEncoderModel(encoder.model, pooling).eval()
    made = Checkpoint(
        scorer=TextEncoder,
        encoder=encoder,
        write_graphs=partial(write_graphs, model, CONTRACT),
        score=score_as_pairs(partial(compare_pairs, model, encoder)),
        turns=turns_of(reference.pairs),
        source=reference.source,
        training={"encoder": Path(encoder.name).name, "pooling": pooling, "trained": "as published"},
    )
    return export_checkpoint(made, options)
