"""The quality model in torch: one BERT over each text, and a head that compares a response with what it answers.

Every text is a row of its own. A turn points at the rows of its response and of the latest context turns; the
head reads their vectors, differences and products. So a text is computed once for all turns of a dialogue and all
candidates of a ranking, and an encoder that was trained to compare sentences keeps what it knows.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertModel
from turnscore_assessment.data.dialogue_sets import Spoken
from turnscore_service.scorers.quality_windows import TextRows, TokenIds, WindowLayout, lay_out_rows

from turnscore_exporters.errors import EncoderError
from turnscore_exporters.graphs.export import BertGraph
from turnscore_exporters.training.checkpoint_files import read_checkpoint, write_checkpoint
from turnscore_exporters.training.encoders import Encoder, pad_rows

HEADS = ("relevant", "sound", "engaging", "sentiment", "goes_on", "overall")
"""Questions in the order of the head's outputs. All are logits but `sentiment`, which is a score from -1 to 1."""
RELEVANT, SOUND, ENGAGING, SENTIMENT, GOES_ON, OVERALL = range(len(HEADS))
CONTEXT_ROWS = 3
"""Context turns that the head can compare with."""
READ_TURNS = 2
"""Of them so many are read. Measured: two agree with people as well as three, and cost a sixth less."""
HIDDEN_UNITS = 256
NO_ROW = -1
"""In the place of a context turn that there is not."""
LOWEST = -1e4
BATCH_TOKENS, PAIRS_AT_ONCE = 8192, 1024
FIRST_SLOPE, FIRST_BIAS = 10.0, -3.0
"""The head `relevant` begins as a logistic curve over the cosine of response and latest turn. Chosen."""


@dataclass(frozen=True)
class QualitySettings:
    """What, besides the weights, makes the model."""

    encoder: str
    layout: WindowLayout = field(default_factory=lambda: WindowLayout(context_turns=READ_TURNS))
    dropout: float = 0.1


@dataclass(frozen=True, slots=True)
class Pair:
    """One window of a response and the rows of the latest context turns, the latest first, as many as there are."""

    window: TokenIds
    context: tuple[TokenIds, ...]


class QualityModel(BertGraph):
    """Answers every question about every pair of a response and its context."""

    def __init__(self, encoder: BertModel, settings: QualitySettings) -> None:
        super().__init__()
        self.encoder = encoder
        self.settings = settings
        width = int(encoder.config.hidden_size)
        self.dropout = nn.Dropout(settings.dropout)
        self.hidden = nn.Linear(width * 9 + 6, HIDDEN_UNITS)
        self.head = nn.Linear(HIDDEN_UNITS, len(HEADS))
        nn.init.normal_(self.hidden.weight, std=0.02)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.hidden.bias)
        nn.init.zeros_(self.head.bias)
        self.slope = nn.Parameter(torch.tensor(FIRST_SLOPE))

    def read_rows(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Row vectors, fp32 [rows, 2 x width + 1], of ids and mask [rows, tokens].

        The mean of the token vectors, scaled to length 1, their maximum, and the logarithm of the number of tokens.
        """
        tokens = self.encoder(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=torch.zeros_like(input_ids)
        ).last_hidden_state.float()
        mask = attention_mask.unsqueeze(-1).to(tokens.dtype)
        mean = (tokens * mask).sum(1) / mask.sum(1).clamp_min(1.0)
        mean = mean / (mean * mean).sum(-1, keepdim=True).clamp_min(1e-12).sqrt()
        highest = (tokens * mask + LOWEST * (1 - mask)).amax(1)
        length = attention_mask.sum(1, keepdim=True).to(tokens.dtype).log()
        return torch.cat([mean, highest, length], dim=-1)

    def find_features(self, vectors: Tensor, response_row: Tensor, context_rows: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden units [pairs, HIDDEN_UNITS], and the cosine [pairs, 1] of response and latest turn.

        Of row vectors, the pairs' response rows [pairs] and context rows [pairs, CONTEXT_ROWS], NO_ROW for none.
        """
        width = (vectors.shape[-1] - 1) // 2
        scale = float(width) ** 0.5
        response = vectors[response_row]
        there = (context_rows >= 0).unsqueeze(-1).to(vectors.dtype)
        context = vectors[context_rows.clamp_min(0)] * there
        mean, means = response[:, :width] * scale, context[:, :, :width] * scale
        last, previous, earlier = means[:, 0], means[:, 1], means[:, 2]
        products = means * mean.unsqueeze(1)
        cosines = products.mean(-1)
        features = torch.cat(
            [
                mean,
                response[:, width : 2 * width],
                last,
                previous,
                (last - mean).abs(),
                (previous - mean).abs(),
                products[:, 0],
                products[:, 1],
                earlier * mean,
                cosines,
                response[:, 2 * width :],
                context[:, 0, 2 * width :],
                there[:, 1],
            ],
            dim=-1,
        )
        return self.dropout(functional.gelu(self.hidden(self.dropout(features)))), cosines[:, :1]

    def compare(self, vectors: Tensor, response_row: Tensor, context_rows: Tensor) -> Tensor:
        """Outputs [pairs, heads] before any sigmoid, of the same."""
        hidden, cosine = self.find_features(vectors, response_row, context_rows)
        outputs = self.head(hidden)
        similar = torch.zeros_like(outputs)
        similar[:, RELEVANT] = 1.0
        answered: Tensor = outputs + similar * self.slope * cosine
        return answered

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, response_row: Tensor, context_rows: Tensor
    ) -> tuple[Tensor, ...]:
        """One float32 [pairs] for each of HEADS: probabilities, and the sentiment as it is."""
        return self.answer(self.compare(self.read_rows(input_ids, attention_mask), response_row, context_rows))

    def answer(self, outputs: Tensor) -> tuple[Tensor, ...]:
        """The heads' answers, float32 [pairs] each, of outputs [pairs, heads]."""
        return tuple(
            outputs[:, place] if name == "sentiment" else outputs[:, place].sigmoid()
            for place, name in enumerate(HEADS)
        )


class RowBuilder:
    """Lays texts out as the service does, each text tokenized once."""

    def __init__(self, encoder: Encoder, layout: WindowLayout) -> None:
        """EncoderError where the tokenizer lacks a token that a row needs."""
        self._encoder = encoder
        self._layout = layout
        self._first, self._separator = encoder.special("[CLS]"), encoder.special("[SEP]")
        self._ids: dict[str, list[int]] = {}

    def add(self, texts: Iterable[str]) -> None:
        """Tokenizes the texts that were not seen yet."""
        wanted = [text for text in dict.fromkeys(texts) if text not in self._ids]
        self._ids.update(zip(wanted, self._encoder.tokenize_bare(wanted), strict=True))

    def build(self, context: Sequence[Spoken], response: str) -> TextRows:
        """The rows of a response and its context, oldest turn first; EncoderError for one that is too long."""
        latest = context[max(0, len(context) - self._layout.context_turns) :]
        self.add([response, *(text for _, text in latest)])
        spoken = [self._ids[text] for _, text in latest if self._ids[text]]
        rows = lay_out_rows(spoken, self._ids[response], self._layout, self._first, self._separator)
        longest = max(map(len, (*rows.windows, *rows.context)))
        if longest > self._encoder.token_limit:
            limit = self._encoder.token_limit
            raise EncoderError(f"encoder {self._encoder.name}: reads {limit} tokens, a row has {longest}")
        return rows

    def pairs(self, context: Sequence[Spoken], response: str) -> list[Pair]:
        """A pair for each window of the response."""
        built = self.build(context, response)
        return [Pair(window, built.context) for window in built.windows]

    def first_pair(self, context: Sequence[Spoken], response: str) -> Pair:
        """The pair of the first window alone."""
        return self.pairs(context, response)[0]


def collate_pairs(pairs: Sequence[Pair]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The graph's inputs: ids and mask [rows, tokens] of the distinct rows, and where each pair's rows are."""
    places: dict[TokenIds, int] = {}
    for pair in pairs:
        for row in (pair.window, *pair.context):
            places.setdefault(row, len(places))
    input_ids, attention_mask = pad_rows(list(places))
    response_row = torch.tensor([places[pair.window] for pair in pairs])
    context_rows = torch.full((len(pairs), CONTEXT_ROWS), NO_ROW)
    for index, pair in enumerate(pairs):
        for place, row in enumerate(pair.context[:CONTEXT_ROWS]):
            context_rows[index, place] = places[row]
    return input_ids, attention_mask, response_row, context_rows


def score_pairs(model: QualityModel, pairs: Sequence[Pair]) -> Tensor:
    """What forward gives for each pair, [pairs, heads], in order. Each distinct row is computed once."""
    return _ask(model, pairs, lambda *rows: torch.stack(model.answer(model.compare(*rows)), dim=-1))


def read_features(model: QualityModel, pairs: Sequence[Pair]) -> Tensor:
    """The hidden units of each pair, [pairs, HIDDEN_UNITS], in order."""
    return _ask(model, pairs, lambda *rows: model.find_features(*rows)[0])


def _ask(model: QualityModel, pairs: Sequence[Pair], ask: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
    places: dict[TokenIds, int] = {}
    for pair in pairs:
        for row in (pair.window, *pair.context):
            places.setdefault(row, len(places))
    response_row = torch.tensor([places[pair.window] for pair in pairs])
    context_rows = torch.tensor([[places[row] for row in pair.context] + _missing(pair) for pair in pairs])
    with torch.inference_mode():
        vectors = _read_distinct(model, list(places))
        chunks = zip(torch.split(response_row, PAIRS_AT_ONCE), torch.split(context_rows, PAIRS_AT_ONCE), strict=True)
        return torch.cat([ask(vectors, rows, context) for rows, context in chunks])


def _missing(pair: Pair) -> list[int]:
    return [NO_ROW] * (CONTEXT_ROWS - len(pair.context))


def _read_distinct(model: QualityModel, rows: Sequence[TokenIds]) -> Tensor:
    """The vectors of the rows, in order, computed in batches of like width."""
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    chunks: list[list[int]] = []
    for index in order:
        if not chunks or (len(chunks[-1]) + 1) * len(rows[index]) > BATCH_TOKENS:
            chunks.append([])
        chunks[-1].append(index)
    vectors = torch.cat([model.read_rows(*pad_rows([rows[index] for index in chunk])) for chunk in chunks])
    return vectors[torch.tensor(order).argsort()]


def save_model(model: QualityModel, encoder: Encoder, folder: Path) -> None:
    """Writes weights, settings, the BERT's shape and the tokenizer: everything that export needs."""
    layout = model.settings.layout
    settings = {**asdict(model.settings), "layout": layout.model_dump(), "token_limit": layout.row_tokens}
    write_checkpoint(folder, model, settings, encoder)


def load_model(folder: Path) -> tuple[QualityModel, Encoder]:
    """Reads what save_model wrote, ready to score; CheckpointError naming what is missing or broken."""

    def build(record: dict[str, Any], bert: BertModel) -> QualityModel:
        layout = WindowLayout.model_validate(record["layout"])
        return QualityModel(bert, QualitySettings(record["encoder"], layout, record["dropout"]))

    return read_checkpoint(folder, "quality", build)
