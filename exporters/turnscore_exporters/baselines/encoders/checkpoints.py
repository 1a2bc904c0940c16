"""BERT and RoBERTa checkpoints in the hub's form, by folder or name, for pairs and for masked words. Trains nothing."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
)
from turnscore_core.scorers.pair_rows import PairMarks, PairRow, lay_out_pair

from turnscore_exporters.errors import EncoderError
from turnscore_exporters.training.encoders import SHORT_NAMES, plain_tokenizer

KNOWN_TYPES = ("bert", "roberta")
ROWS_TOGETHER = 8
"""Rows of like length that a training step reads together. Chosen: for each token of 16 exchanges it leaves 1.5 to read
instead of 2.2; what smaller groups save, more of them cost."""
RESPONSE_SHARE = 0.5
"""Most tokens of a row for the response, so that what it answers always stays in the row. Chosen."""


@dataclass(frozen=True, kw_only=True)
class PairCheckpoint:
    """A model with a head, and how texts become its rows."""

    name: str
    model: PreTrainedModel
    tokenizer: Tokenizer
    fast_tokenizer: Any
    marks: PairMarks
    token_limit: int
    most_response_tokens: int | None = None
    """Most response tokens of a row; None means half of the row."""

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
        return self.most_response_tokens or int(RESPONSE_SHARE * self.token_limit)

    def lay_out(self, pairs: Sequence[tuple[str, str]]) -> list[PairRow]:
        """A row for each (said, response)."""
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        encoded = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        ids = dict(zip(texts, (each.ids for each in encoded), strict=True))
        return [
            lay_out_pair(
                ids[said],
                ids[response],
                self.marks,
                token_limit=self.token_limit,
                response_tokens=self.response_tokens,
            )
            for said, response in pairs
        ]

    def collate(self, rows: Sequence[Sequence[int]], starts: Sequence[int]) -> dict[str, Tensor]:
        """The model's inputs: ids, mask, and segments that begin at each `start` where the model has them."""
        longest = max(map(len, rows))
        ids = torch.full((len(rows), longest), self.marks.pad, dtype=torch.int64)
        mask = torch.zeros(len(rows), longest, dtype=torch.int64)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = torch.tensor(row)
            mask[index, : len(row)] = 1
        inputs = {"input_ids": ids, "attention_mask": mask}
        if self.has_segments:
            places = torch.arange(longest)[None, :]
            inputs["token_type_ids"] = ((places >= torch.tensor(starts)[:, None]) & (mask > 0)).long()
        return inputs

    def save(self, folder: Path) -> None:
        """Writes the checkpoint in the hub's form, for `load_pair_model` and `load_masked_model`."""
        self.model.save_pretrained(folder)
        self.fast_tokenizer.save_pretrained(folder)


def split_by_length(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> list[tuple[Tensor, dict[str, Tensor]]]:
    """The rows of a batch in groups of like length, without the padding that no row of a group needs.

    Gives for each group the places of its rows in the batch, and its inputs. Ids are looked up here, once: the word
    table's gradient, as large as the table, is then made once per step and not for each group.
    """
    lengths = inputs["attention_mask"].sum(1)
    whole = {name: each for name, each in inputs.items() if name != "input_ids"}
    whole["inputs_embeds"] = model.get_input_embeddings()(inputs["input_ids"])
    return [
        (places, {name: each[places, : int(lengths[places].max())] for name, each in whole.items()})
        for places in torch.split(lengths.argsort(stable=True), ROWS_TOGETHER)
    ]


def load_pair_model(name: str, token_limit: int = 128) -> PairCheckpoint:
    """A model that gives one logit, or two classes, for a pair; a missing head is initialised at random.

    Raises EncoderError if it is not found, or neither BERT nor RoBERTa.
    """
    config = _read_config(name)
    extra = {} if config.architectures and "SequenceClassification" in config.architectures[0] else {"num_labels": 1}
    return _load(name, AutoModelForSequenceClassification, token_limit, extra)


def load_masked_model(name: str, token_limit: int = 128) -> PairCheckpoint:
    """A model that predicts masked words; EncoderError as `load_pair_model`, and where the tokenizer has no mask."""
    loaded = _load(name, AutoModelForMaskedLM, token_limit, {})
    if loaded.marks.mask is None:
        raise EncoderError(f"checkpoint {name}: its tokenizer has no mask token")
    return loaded


def find_marks(tokenizer: Tokenizer, name: str) -> PairMarks:
    """The special tokens of BERT, or of RoBERTa; EncoderError where the tokenizer has neither."""
    for first, separator, pad, mask, separators in (
        ("[CLS]", "[SEP]", "[PAD]", "[MASK]", 1),
        ("<s>", "</s>", "<pad>", "<mask>", 2),
    ):
        found = [tokenizer.token_to_id(mark) for mark in (first, separator, pad)]
        if None not in found:
            begin, end, padding = (int(each) for each in found if each is not None)
            return PairMarks(
                first=begin, between=(end,) * separators, last=end, pad=padding, mask=tokenizer.token_to_id(mask)
            )
    raise EncoderError(f"checkpoint {name}: its tokenizer has neither BERT's special tokens nor RoBERTa's")


def _read_config(name: str) -> Any:
    source = SHORT_NAMES[name]() if name in SHORT_NAMES else name
    try:
        config = AutoConfig.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise EncoderError(f"checkpoint {name}: cannot be loaded ({error})") from error
    if config.model_type not in KNOWN_TYPES:
        raise EncoderError(f"checkpoint {name}: is a {config.model_type}, expected bert or roberta")
    return config


def _load(name: str, kind: Any, token_limit: int, extra: dict[str, int]) -> PairCheckpoint:
    config = _read_config(name)
    source = SHORT_NAMES[name]() if name in SHORT_NAMES else name
    try:
        with _no_warnings():
            model = kind.from_pretrained(source, dtype=torch.float32, attn_implementation="eager", **extra)
            fast = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise EncoderError(f"checkpoint {name}: cannot be loaded ({error})") from error
    tokenizer = plain_tokenizer(fast.backend_tokenizer)
    offset = int(config.pad_token_id) + 1 if config.model_type == "roberta" else 0
    return PairCheckpoint(
        name=name,
        model=model.eval(),
        tokenizer=tokenizer,
        fast_tokenizer=fast,
        marks=find_marks(tokenizer, name),
        token_limit=min(token_limit, int(config.max_position_embeddings) - offset),
    )


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Silences transformers' warning about a new head: it was asked for."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
