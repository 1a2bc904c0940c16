"""The dialogue language model's files: GPT-2 architecture, byte-level BPE, DialoGPT's layout. Trains no weights."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel

from turnscore_exporters.errors import CheckpointError

END_OF_TEXT = "<|endoftext|>"
TOKENIZER_FILE = "tokenizer.json"


@dataclass(frozen=True, kw_only=True)
class LanguageModelSize:
    """The model's size. Chosen: its int8 bundle stays under 12 MB, and 256 positions hold about 15 chat turns."""

    vocabulary: int = 8192
    positions: int = 256
    width: int = 256
    layers: int = 6
    heads: int = 4


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """A byte-level BPE as GPT-2's: every text can be encoded, and the end-of-text token comes last."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - 1,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=2,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([END_OF_TEXT])
    return tokenizer


def find_end_of_text(tokenizer: Tokenizer) -> int:
    """The id of the token between turns; CheckpointError where the tokenizer has none."""
    token_id = tokenizer.token_to_id(END_OF_TEXT)
    if token_id is None:
        raise CheckpointError(f"the tokenizer has no {END_OF_TEXT} token")
    return token_id


def build_model(size: LanguageModelSize, vocabulary: int, eos_id: int) -> GPT2LMHeadModel:
    """A new model without dropout: it sees each text once or twice."""
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=vocabulary,
            n_positions=size.positions,
            n_embd=size.width,
            n_layer=size.layers,
            n_head=size.heads,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=eos_id,
            eos_token_id=eos_id,
        )
    )


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes `tokenizer.json`, and `vocab.json` and `merges.txt` as GPT-2 has them."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / TOKENIZER_FILE))
    tokenizer.model.save(str(folder))
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
