"""Tiny random BERT and RoBERTa checkpoints in the hub's form, with a head for pairs or for masked words."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
)

from support.exporter_data import WORDS, save_tiny_bert

SHAPE: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128,
    "max_position_embeddings": 64,
}  # fmt: skip
ROBERTA_MARKS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def save_tiny_masked(folder: Path, family: str) -> Path:
    return _save(folder, family, {"bert": BertForMaskedLM, "roberta": RobertaForMaskedLM}[family], {})


def save_tiny_pair(folder: Path, family: str, labels: int = 1) -> Path:
    kinds = {"bert": BertForSequenceClassification, "roberta": RobertaForSequenceClassification}
    return _save(folder, family, kinds[family], {"num_labels": labels})


def _save(folder: Path, family: str, kind: Any, extra: dict[str, int]) -> Path:
    if family == "bert":
        save_tiny_bert(folder)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        tokenizer.mask_token = "[MASK]"
        config: Any = BertConfig(vocab_size=len(tokenizer), **SHAPE, **extra)
    else:
        tokenizer = _roberta_tokenizer()
        config = RobertaConfig(
            vocab_size=len(tokenizer), pad_token_id=1, bos_token_id=0, eos_token_id=2, type_vocab_size=1,
            **SHAPE, **extra,
        )  # fmt: skip
    torch.manual_seed(0)
    tokenizer.save_pretrained(folder)
    kind(config).save_pretrained(folder)
    return folder


def _roberta_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level, of whole words: what is not known is spelt in bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*WORDS, *(f"\u0120{word}" for word in WORDS)]
    vocabulary = {token: number for number, token in enumerate([*ROBERTA_MARKS, *alphabet])}
    merges: list[tuple[str, str]] = []
    for word in words:
        for end in range(2, len(word) + 1):
            if word[:end] not in vocabulary:
                vocabulary[word[:end]] = len(vocabulary)
                merges.append((word[: end - 1], word[end - 1]))
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>",
        mask_token="<mask>", cls_token="<s>", sep_token="</s>",
    )  # fmt: skip
