"""Models that judge a response in its context: BERT and RoBERTa checkpoints with a head, and ctx-RUBER's network."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, PreTrainedModel
from turnscore_assessment.figures import Floats
from turnscore_core.inference.tokenizer import TextTokenizer
from turnscore_core.scorers.relevance import PairRow, lay_out_pair, masked_copies

from turnscore_exporters.errors import EncoderError
from turnscore_exporters.graphs.export import average_tokens
from turnscore_exporters.training import encoders


@dataclass(frozen=True, kw_only=True)
class PairCheckpoint:
    """A model with a head, and how texts become its rows."""

    name: str
    model: PreTrainedModel
    tokenizer: Tokenizer
    fast_tokenizer: Any
    texts: TextTokenizer  # The same tokenizer, as the service uses it.
    token_limit: int
    most_response_tokens: int | None = None  # Most response tokens of a row; None means half of the row.

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def has_segments(self) -> bool:
        """Whether context and response have segment ids of their own."""
        return int(getattr(self.config, "type_vocab_size", 1)) > 1

    @property
    def response_tokens(self) -> int:
        """Most response tokens of a row."""
        # Chosen: what the response answers always stays in the row.
        return self.most_response_tokens or int(0.5 * self.token_limit)

    def lay_out(self, pairs: Sequence[tuple[str, str]]) -> list[PairRow]:
        """A row for each (said, response)."""
        ids = self.texts.encode_each(chain.from_iterable(pairs))
        limits = {"token_limit": self.token_limit, "response_tokens": self.response_tokens}
        return [lay_out_pair(ids[said], ids[response], self.texts, **limits) for said, response in pairs]

    def collate(self, rows: Sequence[Sequence[int]], starts: Sequence[int]) -> dict[str, Tensor]:
        """The model's inputs: ids, mask, and segments that begin at each `start` where the model has them."""
        ids, mask = encoders.pad_rows(rows, self.texts.pad_id)
        inputs = {"input_ids": ids, "attention_mask": mask}
        if self.has_segments:
            places = torch.arange(ids.shape[1])[None, :]
            inputs["token_type_ids"] = ((places >= torch.tensor(starts)[:, None]) & (mask > 0)).long()
        return inputs

    def save(self, folder: Path) -> None:
        """Writes the checkpoint in the hub's form, for `load_pair_model` and `load_masked_model`."""
        self.model.save_pretrained(folder)
        self.fast_tokenizer.save_pretrained(folder)


def load_pair_model(name: str, token_limit: int = 128) -> PairCheckpoint:
    """A model that gives one logit, or two classes, for a pair; a missing head is initialised at random.

    Raises EncoderError if it is not found, or neither BERT nor RoBERTa.
    """
    return _load(name, AutoModelForSequenceClassification, token_limit, _new_head)


def _new_head(config: Any) -> dict[str, object]:
    is_there = config.architectures and "SequenceClassification" in config.architectures[0]
    return {} if is_there else {"num_labels": 1}


def load_masked_model(name: str, token_limit: int = 128) -> PairCheckpoint:
    """A model that predicts masked words; EncoderError as `load_pair_model`, and where the tokenizer has no mask."""
    loaded = _load(name, AutoModelForMaskedLM, token_limit)
    mask_of(loaded)
    return loaded


def _load(
    name: str, kind: Any, token_limit: int, options: Callable[[Any], Mapping[str, object]] = lambda _: {}
) -> PairCheckpoint:
    logging.disable(logging.WARNING)  # transformers warns about a new head: it was asked for
    try:
        config, model, fast = encoders.load_pretrained(f"checkpoint {name}", name, kind, ("bert", "roberta"), options)
    finally:
        logging.disable(logging.NOTSET)
    tokenizer = encoders.plain_tokenizer(fast.backend_tokenizer)
    try:
        texts = TextTokenizer(tokenizer, f"checkpoint {name}: its tokenizer")
    except RuntimeError as error:
        raise EncoderError(str(error)) from None
    offset = int(config.pad_token_id) + 1 if config.model_type == "roberta" else 0
    return PairCheckpoint(
        name=name,
        model=model,
        tokenizer=tokenizer,
        fast_tokenizer=fast,
        texts=texts,
        token_limit=min(token_limit, int(config.max_position_embeddings) - offset),
    )


class FrozenVectors(encoders.TextVectors):
    """Mean vectors of texts by a frozen BERT; an empty text is a vector of zeros."""

    def __init__(self, encoder: encoders.Encoder) -> None:
        super().__init__(
            encoder, lambda ids, mask: average_tokens(encoder.model(ids, mask).last_hidden_state.float(), mask)
        )
        self._known[""] = torch.zeros(encoder.width)
        self.width = encoder.width

    def unit(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The vectors scaled to length 1, [texts, width]."""
        return np.asarray(torch.nn.functional.normalize(self.of(texts), dim=-1).numpy(), dtype=np.float32)


HIDDEN_UNITS = (256, 512, 128)


class PairHead(nn.Module):
    """Scores two vectors by an MLP over [q, q M r, r], M learned."""

    def __init__(self, width: int, activation: type[nn.Module] = nn.Tanh, dropout: float = 0.0) -> None:
        super().__init__()
        self.quadratic = nn.Parameter(torch.empty(width, width))
        nn.init.xavier_uniform_(self.quadratic)
        layers: list[nn.Module] = []
        before = 2 * width + 1
        for units in HIDDEN_UNITS:
            layers += [nn.Linear(before, units), activation(), nn.Dropout(dropout)]
            before = units
        self.layers = nn.Sequential(*layers, nn.Linear(before, 1))

    def forward(self, query: Tensor, reply: Tensor) -> Tensor:
        """Logits [pairs] of two [pairs, width]."""
        product = ((query @ self.quadratic) * reply).sum(-1, keepdim=True)
        logits: Tensor = self.layers(torch.cat([query, product, reply], dim=-1)).squeeze(-1)
        return logits


NETWORK_PAIRS_AT_ONCE = 4096  # Pairs whose vectors are stacked together: PONE judges several hundred thousand.


class PairNetwork(encoders.Standardized):
    """Standardises both vectors by the training's mean and spread, then the head."""

    def __init__(self, width: int, *, is_pone: bool = False) -> None:
        super().__init__(width)
        self.head = PairHead(width, nn.ReLU, dropout=0.5) if is_pone else PairHead(width)

    def forward(self, query: Tensor, reply: Tensor) -> Tensor:
        """Logits [pairs]."""
        logits: Tensor = self.head((query - self.center) / self.scale, (reply - self.center) / self.scale)
        return logits


def score_network(network: PairNetwork, vectors: FrozenVectors, pairs: Sequence[tuple[str, str]]) -> Floats:
    """The probability that each (query, reply) fits; without a query the reply stands for both, as in the service."""
    if not pairs:
        return np.zeros(0)
    queries, replies = [query.strip() or reply for query, reply in pairs], [reply for _, reply in pairs]
    with torch.inference_mode():
        found = [
            network(vectors.of(said), vectors.of(answered)).sigmoid()
            for said, answered in zip(
                encoders.chunks(queries, NETWORK_PAIRS_AT_ONCE),
                encoders.chunks(replies, NETWORK_PAIRS_AT_ONCE),
                strict=True,
            )
        ]
    return np.asarray(torch.cat(found).numpy(), dtype=np.float64)


def read_logits(checkpoint: PairCheckpoint, pairs: Sequence[tuple[str, str]]) -> Tensor:
    """How well each (said, response) fits, [pairs]: the logit, or the second class's margin."""
    return margin_of(checkpoint.model(**collate_pairs(checkpoint, pairs)).logits)


def margin_of(logits: Tensor) -> Tensor:
    """Turns [pairs, 1] or [pairs, 2] into [pairs]."""
    return logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]


def collate_pairs(checkpoint: PairCheckpoint, pairs: Sequence[tuple[str, str]]) -> dict[str, Tensor]:
    rows = checkpoint.lay_out(pairs)
    return checkpoint.collate([row.ids for row in rows], [row.response_start for row in rows])


def score_pairs(checkpoint: PairCheckpoint, pairs: Sequence[tuple[str, str]]) -> Floats:
    """The probability of each pair, in batches of like length."""
    found = encoders.score_alike(
        pairs, lambda pair: sum(map(len, pair)), lambda own: read_logits(checkpoint, own).sigmoid()
    )
    return np.asarray(found.numpy(), dtype=np.float64)


TOKENS_AT_ONCE = 4096


def score_masked(checkpoint: PairCheckpoint, pairs: Sequence[tuple[str, str]]) -> Floats:
    """The mean log probability of each response's tokens; NaN for a response without tokens."""
    rows = checkpoint.lay_out(pairs)
    copies = [
        (index, row.response_start, *copy)
        for index, row in enumerate(rows)
        for copy in masked_copies(row.ids, row.response_start, row.response_end, mask_of(checkpoint))
    ]
    found = encoders.score_alike(
        copies, lambda copy: len(copy[2]), partial(_log_probabilities, checkpoint), TOKENS_AT_ONCE
    )
    sums, counts = np.zeros(len(rows)), np.zeros(len(rows))
    places = [copy[0] for copy in copies]
    np.add.at(sums, places, found.double().numpy())
    np.add.at(counts, places, 1)
    with np.errstate(invalid="ignore"):
        means: Floats = sums / counts
    return means


def _log_probabilities(
    checkpoint: PairCheckpoint, copies: Sequence[tuple[int, int, tuple[int, ...], int, int]]
) -> Tensor:
    """Log probability of the token that each copy hides; only its place is multiplied by the word table."""
    _, starts, rows, places, targets = zip(*copies, strict=True)
    inputs = checkpoint.collate(rows, starts)
    trunk, head = split_model(checkpoint.model)
    tokens = trunk(**inputs).last_hidden_state
    hidden = tokens[torch.arange(len(rows)), torch.tensor(places)]
    found: Tensor = head(hidden).log_softmax(-1)[torch.arange(len(rows)), torch.tensor(targets)]
    return found


def split_model(model: torch.nn.Module) -> tuple[torch.nn.Module, torch.nn.Module]:
    """The encoder, and the head over the vocabulary, of a BERT or RoBERTa."""
    for trunk, head in (("bert", "cls"), ("roberta", "lm_head")):
        if hasattr(model, trunk) and hasattr(model, head):
            return getattr(model, trunk), getattr(model, head)
    raise EncoderError(f"{type(model).__name__} has no known head for masked words; name a BERT or RoBERTa")


def mask_of(checkpoint: PairCheckpoint) -> int:
    if checkpoint.texts.mask_id is None:
        raise EncoderError(f"checkpoint {checkpoint.name}: its tokenizer has no mask token")
    return checkpoint.texts.mask_id
