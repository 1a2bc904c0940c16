"""A tiny GPT-2 with a real byte-level BPE, made here, in DialoGPT's files; and FED as published code runs it."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel
from turnscore_core.scorers.fed.questions import FedBundleOptions
from turnscore_exporters.fed.bundle import REFERENCE_FILE, FedExport, export_fed, read_qualities
from turnscore_exporters.fed.language_model import END_OF_TEXT, save_tokenizer, train_tokenizer
from turnscore_exporters.fed.model import load_checkpoint
from turnscore_models import Bundle, GraphVariant

from support.exporter_data import WORDS

FollowUps = Mapping[str, Mapping[str, Sequence[str]]]
Ratings = dict[str, dict[str, float]]
"""By loss, then by quality."""


def save_tiny_dialogpt(folder: Path, positions: int = 1024) -> Path:
    """`config.json`, `pytorch_model.bin`, `vocab.json`, `merges.txt`; random weights, large enough to matter."""
    generator = random.Random(0)
    sentences = [" ".join(generator.choices((*WORDS, "That's", "really", "interesting!"), k=8)) for _ in range(300)]
    tokenizer = train_tokenizer(sentences, 420)
    save_tokenizer(tokenizer, folder)
    (folder / "tokenizer.json").unlink()
    torch.manual_seed(0)
    eos_id = tokenizer.token_to_id(END_OF_TEXT)
    config = GPT2Config(
        vocab_size=tokenizer.get_vocab_size(),
        n_positions=positions,
        n_embd=64,
        n_layer=2,
        n_head=4,
        initializer_range=0.2,
        bos_token_id=eos_id,
        eos_token_id=eos_id,
    )
    model = GPT2LMHeadModel(config)
    config.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    return folder


def export_tiny_fed(
    checkpoint: Path, folder: Path, graphs: Sequence[GraphVariant], names: Sequence[str] | None = None
) -> Bundle:
    """A bundle of `save_tiny_dialogpt`'s checkpoint with these qualities or all 18, and 100 made-up turns."""
    loaded, shipped = load_checkpoint(str(checkpoint)), read_qualities()
    options = FedBundleOptions(
        qualities={name: shipped.qualities[name] for name in names or shipped.qualities},
        default_qualities=tuple(names or shipped.default),
        eos_id=loaded.eos_id,
        reference=REFERENCE_FILE,
    )
    turns = [(f"hi {number}", "what did you do?", "I saw whales " * (number % 4)) for number in range(100)]
    job = FedExport(
        checkpoint=loaded, version="1.0.0", options=options, reference=turns, source="made up", graphs=graphs
    )
    return export_fed(job, folder)


class PublishedFed:
    """One forward pass for each follow-up over one string, with transformers' own tokenizer and loss."""

    def __init__(self, folder: Path) -> None:
        self.model = GPT2LMHeadModel.from_pretrained(folder).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)

    def rate(self, texts: Sequence[str], qualities: FollowUps, join: str, window: int = 1024) -> Ratings:
        """Each quality's value by each loss; beyond the window the oldest tokens go, so that every follow-up fits."""
        distinct = {text for each in qualities.values() for texts in each.values() for text in texts}
        context = self.encode("".join(self._piece(text, join) for text in texts) + END_OF_TEXT)
        rows = {text: self.encode(self._last(text, join)) for text in distinct}
        context = self._cut(context, window - max(map(len, rows.values())))
        losses = {text: self._losses(context, row) for text, row in rows.items()}
        return {
            loss: {
                name: _mean(losses, quality["negative"], loss) - _mean(losses, quality["positive"], loss)
                for name, quality in qualities.items()
            }
            for loss in ("response_only", "whole_sequence")
        }

    def _piece(self, text: str, join: str) -> str:
        return END_OF_TEXT + (text.strip() if join == "stripped" else f" {text} ")

    def _last(self, text: str, join: str) -> str:
        return text if join == "stripped" else f" {text}"

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text)["input_ids"]
        return ids

    def _cut(self, context: list[int], room: int) -> list[int]:
        eos_id = self.tokenizer.eos_token_id
        if len(context) > room:
            context = context[-room:]
            context[0] = eos_id
        return context

    def _losses(self, context: list[int], row: list[int]) -> dict[str, float]:
        ids = torch.tensor([context + row])
        response = ids.clone()
        response[:, : len(context)] = -100
        with torch.inference_mode():
            whole = self.model(input_ids=ids, labels=ids)
            loss = self.model.loss_function(whole.logits, response, vocab_size=whole.logits.shape[-1])
        return {"whole_sequence": float(whole.loss), "response_only": float(loss)}


def _mean(losses: Mapping[str, Mapping[str, float]], texts: Sequence[str], loss: str) -> float:
    return sum(losses[text][loss] for text in texts) / len(texts) if texts else 0.0
