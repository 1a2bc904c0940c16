"""The sentiment/stop regressor of Ghazarian et al. (2022) in torch: a BERT over context and response, two outputs."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertModel
from turnscore_assessment.data.dialogues import Spoken
from turnscore_core.scorers.sentiment_stop import DialogueRow, SpecialTokens, WindowLayout, lay_out_row

from turnscore_exporters.graphs.export import BertGraph
from turnscore_exporters.training.encoders import POOLED, Encoder, chunks, pad_rows, read_checkpoint, write_checkpoint

ROWS_AT_ONCE = 64
DEFAULT_LAYOUT = WindowLayout(context_turns=3, turn_marks="separator", response_segment=1)


class Target(StrEnum):
    """What the model is trained to predict.

    `two`: sentiment and probability of going on, separately. `sentiment` and `sum`, the paper's, are one regression
    each: the prediction is `sentiment`, and `goes_on` is 0, so that the value is the target.
    """

    TWO = "two"
    SENTIMENT = "sentiment"
    SUM = "sum"


class RowPooling(StrEnum):
    """Which token vectors of a row are averaged (all, the first one, the response's); or BERT's pooled output."""

    MEAN = "mean"
    FIRST = "first"
    RESPONSE = "response"
    POOLED = POOLED


@dataclass(frozen=True, kw_only=True)
class SentimentSettings:
    """The model's settings, besides its weights."""

    encoder: str
    layout: WindowLayout = DEFAULT_LAYOUT
    pooling: RowPooling = RowPooling.MEAN
    target: Target = Target.TWO
    token_limit: int = 80
    dropout: float = 0.1


class SentimentStopModel(BertGraph):
    """The predicted sentiment of the next user utterance, and the probability that there is one, for each row."""

    def __init__(self, encoder: BertModel, settings: SentimentSettings) -> None:
        super().__init__()
        self.encoder = encoder
        self.settings = settings
        self.dropout = nn.Dropout(settings.dropout)
        self.head = nn.Linear(int(encoder.config.hidden_size), 2)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def read_rows(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """Row vectors, fp32 [rows, width], of token ids, mask and segments [rows, tokens]."""
        found = self.encoder(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        if self.settings.pooling is RowPooling.POOLED:
            return found.pooler_output.float()  # type: ignore[no-any-return]
        tokens = found.last_hidden_state.float()
        if self.settings.pooling is RowPooling.FIRST:
            return tokens[:, 0]  # type: ignore[no-any-return]
        counted = attention_mask if self.settings.pooling is RowPooling.MEAN else attention_mask * token_type_ids
        weight = counted.unsqueeze(-1).to(tokens.dtype)
        return (tokens * weight).sum(1) / weight.sum(1).clamp_min(1.0)  # type: ignore[no-any-return]

    def predict(self, vectors: Tensor) -> Tensor:
        """Sentiment and logit of going on, [rows, 2], of row vectors."""
        outputs: Tensor = self.head(self.dropout(vectors))
        return outputs

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Sentiments and probabilities of going on, both float32 [rows]."""
        outputs = self.predict(self.read_rows(input_ids, attention_mask, token_type_ids))
        goes_on = outputs[:, 1].sigmoid()
        return outputs[:, 0], goes_on if self.settings.target is Target.TWO else goes_on * 0.0


class WindowBuilder:
    """Lays texts out as the service does, each text tokenised once."""

    def __init__(self, encoder: Encoder, settings: SentimentSettings) -> None:
        """Raises EncoderError where the tokenizer lacks a token that a row may need."""
        self._encoder = encoder
        self._settings = settings
        self._special = SpecialTokens(
            first=encoder.special("[CLS]"),
            separator=encoder.special("[SEP]"),
            user=encoder.special("[unused0]"),
            system=encoder.special("[unused1]"),
        )
        self._ids: dict[str, list[int]] = {}

    def add(self, texts: Iterable[str]) -> None:
        """Tokenises the texts that were not seen yet."""
        wanted = [text for text in dict.fromkeys(texts) if text not in self._ids]
        self._ids.update(zip(wanted, self._encoder.tokenize_bare(wanted), strict=True))

    def build(self, context: Sequence[Spoken], response: str) -> DialogueRow:
        """The row of a response after its context, oldest turn first."""
        self.add([response, *(text for _, text in context)])
        spoken = [(speaker, self._ids[text]) for speaker, text in context]
        return lay_out_row(
            spoken, self._ids[response], self._settings.layout, self._special, self._settings.token_limit
        )


def collate_rows(rows: Sequence[DialogueRow], layout: WindowLayout) -> tuple[Tensor, Tensor, Tensor]:
    """The graph's three inputs for a batch of rows: ids, mask and segments."""
    input_ids, attention_mask = pad_rows([row.ids for row in rows])
    starts = torch.tensor([[row.response_start] for row in rows])
    segments = (torch.arange(input_ids.shape[1]) >= starts) * attention_mask * layout.response_segment
    return input_ids, attention_mask, segments


def score_rows(model: SentimentStopModel, rows: Sequence[DialogueRow]) -> Tensor:
    """Sentiment and probability of going on, [rows, 2], in order."""
    found = torch.zeros(len(rows), 2)
    order = sorted(range(len(rows)), key=lambda index: len(rows[index].ids))
    with torch.inference_mode():
        for chosen in chunks(order, ROWS_AT_ONCE):
            inputs = collate_rows([rows[index] for index in chosen], model.settings.layout)
            found[chosen] = torch.stack(model(*inputs), dim=-1)
    return found


def save_model(model: SentimentStopModel, encoder: Encoder, folder: Path) -> None:
    """Writes weights, settings, the BERT's shape and the tokenizer: everything that export needs."""
    settings = {**asdict(model.settings), "layout": model.settings.layout.model_dump()}
    write_checkpoint(folder, model, settings, encoder)


def load_model(folder: Path) -> tuple[SentimentStopModel, Encoder]:
    """Reads what save_model wrote, ready to score; CheckpointError naming what is missing or broken."""

    def build(record: dict[str, Any], bert: BertModel) -> SentimentStopModel:
        choices = {"layout": WindowLayout.model_validate(record["layout"]), "target": Target(record["target"])}
        choices["pooling"] = RowPooling(record["pooling"])
        return SentimentStopModel(bert, SentimentSettings(**{**record, **choices}))

    return read_checkpoint(folder, "sentiment/stop", build)
