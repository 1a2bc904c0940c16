"""Stand-ins: models of random weights in the published shapes, tokenizers for them, and FED's follow-ups as tokens.

Only time is measured with them. The tokenizers give a common word one token, as the published ones do.
"""

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import torch
import turnscore_exporters
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel
from turnscore_exporters.engagement.model import EngagementModel, ModelSettings
from turnscore_exporters.fed.language_model import find_end_of_text, train_tokenizer
from turnscore_exporters.training.encoders import Encoder

from turnscore_bench.gpu.shapes import Shape

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = tuple(first + second for first, second in product(("ba", "ce", "di", "fo", "gu"), ("lan", "mer", "nis", "tor")))
"""Twenty words that stand for all others; two of them in a row make 400."""
TOKEN_LIMIT = 128
QUALITIES_FILE = Path(turnscore_exporters.__file__).parent / "fed" / "qualities.json"


def build_encoder(shape: Shape, attention: str = "eager") -> EngagementModel:
    """The engagement classifier on a BERT of that shape; fused graphs are made of eager attention."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.width,
        max_position_embeddings=shape.positions,
        attn_implementation=attention,
    )
    return EngagementModel(BertModel(config, add_pooling_layer=False), ModelSettings(encoder=shape.name)).eval()


def build_language_model(shape: Shape) -> GPT2LMHeadModel:
    """A GPT-2 of that shape."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=shape.vocabulary,
        n_positions=shape.positions,
        n_embd=shape.width,
        n_layer=shape.layers,
        n_head=shape.heads,
        bos_token_id=shape.vocabulary - 1,
        eos_token_id=shape.vocabulary - 1,
    )
    return GPT2LMHeadModel(config).eval()


def as_encoder(model: EngagementModel, shape: Shape) -> Encoder:
    """With a WordPiece of made-up words, every one of them a token."""
    words = [*SPECIAL, *("".join(pair) for pair in product(WORDS, WORDS))]
    known = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordPiece(known, unk_token=SPECIAL[1]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(each, known[each]) for each in ("[CLS]", "[SEP]")]
    )
    return Encoder(name=shape.name, model=model.encoder, tokenizer=tokenizer, token_limit=TOKEN_LIMIT)


def build_dialogue_tokenizer() -> tuple[Tokenizer, int]:
    """A byte-level BPE that knows every word of the follow-ups and the made-up ones; and its separator's id."""
    texts = [text for each in read_follow_ups().values() for text in each]
    made_up = [f"{word} {' '.join(WORDS)}" for word in WORDS]
    tokenizer = train_tokenizer([*texts, *made_up] * 2, 2000)
    return tokenizer, find_end_of_text(tokenizer)


def read_follow_ups() -> dict[str, list[str]]:
    """FED's eighteen qualities, in order, with their follow-ups."""
    stored = json.loads(QUALITIES_FILE.read_text(encoding="utf-8"))
    chosen = {name: stored["qualities"][name] for name in stored["sets"]["fed"]}
    return {name: [*each.get("positive", ()), *each.get("negative", ())] for name, each in chosen.items()}


def encode_follow_ups(tokenizer: Tokenizer, qualities: int) -> list[list[int]]:
    """The follow-ups of the first so many qualities, repeated ones included."""
    asked: Sequence[list[str]] = list(read_follow_ups().values())[:qualities]
    return [tokenizer.encode(text, add_special_tokens=False).ids for each in asked for text in each]
