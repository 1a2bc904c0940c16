"""One training run of the dialogue language model, as the command asks for it."""

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import typer
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional
from transformers import GPT2LMHeadModel

from turnscore_exporters.fed.language_model import (
    LanguageModelSize,
    build_model,
    find_end_of_text,
    save_tokenizer,
    train_tokenizer,
)
from turnscore_exporters.fed.language_model_data import (
    SOURCES,
    DialogueTexts,
    Turns,
    cut_windows,
    group_windows,
    read_texts,
)
from turnscore_exporters.json_files import write_json
from turnscore_exporters.training.loop import LoopSettings, choose_batch, run_loop
from turnscore_exporters.training.runs import TRAINING_FILE, claim_folder

STATE_FILE = "state.pt"
TOKENS_PER_STEP = 2048  # chosen: half a second on one core with bf16 instructions
LEARNING_RATE, WEIGHT_DECAY, WARM_UP_STEPS = 2e-3, 0.1, 100
IGNORED = -100


@dataclass(frozen=True, kw_only=True)
class LanguageModelJob:
    """The command's options."""

    data: Path
    output: Path
    size: LanguageModelSize
    steps: int
    seed: int
    threads: int


def run_language_model_job(job: LanguageModelJob) -> None:
    """Trains the tokenizer and the model, resuming where a run was interrupted; writes both and `training.json`.

    The tokenizer takes seconds and is trained each time: one that lay there might be of other options. It is written
    last, so that a folder of another run keeps its own where this one is refused.
    """
    if job.threads:
        torch.set_num_threads(job.threads)
    claim_folder(job.output, job.data)
    texts = read_texts(job.data)
    tokenizer = train_tokenizer((turn for turns in texts.train for turn in turns), job.size.vocabulary)
    eos_id = find_end_of_text(tokenizer)
    train, held_out = (_tokenize(tokenizer, each, eos_id, job.size.positions) for each in (texts.train, texts.held_out))
    typer.echo(f"{sum(map(len, train)):,} tokens to train on, {sum(map(len, held_out)):,} held out")
    torch.manual_seed(job.seed)
    model = build_model(job.size, tokenizer.get_vocab_size(), eos_id)
    train_model(model, train, eos_id, job)
    perplexity = measure_perplexity(model, held_out, eos_id)
    model.save_pretrained(job.output)
    save_tokenizer(tokenizer, job.output)
    tokens = {"train": sum(map(len, train)), "held_out": sum(map(len, held_out))}
    write_json(job.output / TRAINING_FILE, _describe(job, texts, tokens, perplexity))
    typer.echo(f"held-out perplexity {perplexity:.1f} per token")


def train_model(model: GPT2LMHeadModel, windows: Sequence[Sequence[int]], eos_id: int, job: LanguageModelJob) -> None:
    """Trains in place on the mean loss of every token but the first of each window."""
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, betas=(0.9, 0.95), weight_decay=WEIGHT_DECAY)
    groups = group_windows(windows, TOKENS_PER_STEP)
    key = f"dialogue-lm {asdict(job.size)} steps {job.steps} seed {job.seed} windows {len(windows)}"
    settings = LoopSettings(
        steps=job.steps,
        run_key=key,
        seed=job.seed,
        warm_up_steps=WARM_UP_STEPS,
        save_every=100,
        description="dialogue-lm",
    )

    def step_loss(step: int) -> Tensor:
        group = groups[choose_batch(len(groups), 1, step, job.seed)[0]]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            total, tokens = compute_loss(model, [windows[number] for number in group], eos_id)
        return total / tokens

    model.train()
    run_loop(model, optimizer, step_loss, settings, job.output / STATE_FILE)
    model.eval()


def compute_loss(model: GPT2LMHeadModel, windows: Sequence[Sequence[int]], eos_id: int) -> tuple[Tensor, int]:
    """The summed loss in fp32 of every token but each window's first, and the number of these tokens."""
    width = max(map(len, windows))
    ids = torch.tensor([[*window, *[eos_id] * (width - len(window))] for window in windows])
    targets = torch.tensor([[*window[1:], *[IGNORED] * (width - len(window))] for window in windows])
    logits = model(input_ids=ids).logits[:, :-1]
    total = functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]).float(), targets.reshape(-1), ignore_index=IGNORED, reduction="sum"
    )
    return total, sum(len(window) - 1 for window in windows)


def measure_perplexity(model: GPT2LMHeadModel, windows: Sequence[Sequence[int]], eos_id: int) -> float:
    """exp of the mean loss per token, in fp32; the separators after turns count as tokens."""
    total, tokens = 0.0, 0
    with torch.inference_mode():
        for group in group_windows(windows, TOKENS_PER_STEP):
            loss, count = compute_loss(model, [windows[number] for number in group], eos_id)
            total, tokens = total + float(loss), tokens + count
    return math.exp(total / tokens)


def _tokenize(tokenizer: Tokenizer, dialogues: Sequence[Turns], eos_id: int, window: int) -> list[list[int]]:
    encoded = tokenizer.encode_batch_fast([turn for turns in dialogues for turn in turns], add_special_tokens=False)
    ids = iter(encoded)
    return cut_windows(([next(ids).ids for _ in turns] for turns in dialogues), eos_id, window)


def _describe(job: LanguageModelJob, texts: DialogueTexts, tokens: dict[str, int], perplexity: float) -> dict[str, Any]:
    return {
        "size": asdict(job.size),
        "steps": job.steps,
        "tokens_per_step": TOKENS_PER_STEP,
        "seed": job.seed,
        "data": [source.file for source in SOURCES if source.file in texts.words],
        "words": texts.words,
        "tokens": tokens,
        "held_out_dialogues": len(texts.held_out),
        "held_out_perplexity": round(perplexity, 2),
        "command": f"turnscore train dialogue-lm --data DATA --output CHECKPOINT --steps {job.steps} --seed {job.seed}",
        "date": datetime.now(UTC).date().isoformat(),
        "torch": torch.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
    }
