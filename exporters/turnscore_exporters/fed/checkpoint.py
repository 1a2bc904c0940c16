"""A GPT-2-architecture checkpoint for FED, by folder or hub name: weights, tokenizer, separator. Changes none."""

from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from transformers import AutoTokenizer, GPT2LMHeadModel

from turnscore_exporters.errors import CheckpointError


@dataclass(frozen=True, kw_only=True)
class FedCheckpoint:
    """A language model in fp32, and how its text becomes tokens."""

    name: str
    model: GPT2LMHeadModel
    tokenizer: Tokenizer
    eos_id: int

    @property
    def window(self) -> int:
        """The model's number of positions."""
        return int(self.model.config.n_positions)


def load_checkpoint(name: str) -> FedCheckpoint:
    """Loads a folder such as DialoGPT's (`config.json`, weights, `vocab.json`, `merges.txt`) or a hub name.

    Raises CheckpointError where it is not a GPT-2, or its tokenizer has entries that the model does not know, or no
    end-of-text token.
    """
    try:
        model, report = GPT2LMHeadModel.from_pretrained(name, dtype=torch.float32, output_loading_info=True)
        wrapped = AutoTokenizer.from_pretrained(name)
    except Exception as error:
        raise CheckpointError(f"{name}: holds no GPT-2 language model and tokenizer ({error})") from error
    missing = sorted(set(report["missing_keys"]) - {"lm_head.weight"})
    if missing:
        raise CheckpointError(f"{name}: lacks the weights {', '.join(missing[:3])}; it is not a GPT-2 language model")
    tokenizer: Tokenizer = wrapped.backend_tokenizer
    tokenizer.no_padding()
    tokenizer.no_truncation()
    entries, known = 1 + max(_ids_in_text(tokenizer)), int(model.config.vocab_size)
    if entries > known:
        raise CheckpointError(f"{name}: its tokenizer has {entries} entries, the model {known}")
    eos_id = wrapped.eos_token_id
    if eos_id is None or eos_id >= model.config.vocab_size:
        raise CheckpointError(f"{name}: its tokenizer has no end-of-text token that the model knows")
    return FedCheckpoint(name=name, model=model.eval(), tokenizer=tokenizer, eos_id=int(eos_id))


def _ids_in_text(tokenizer: Tokenizer) -> list[int]:
    """The entries that a text may become: no special ones, such as padding that was added later."""
    added = tokenizer.get_added_tokens_decoder()
    return [
        *tokenizer.get_vocab(with_added_tokens=False).values(),
        *(each for each, token in added.items() if not token.special),
    ]
