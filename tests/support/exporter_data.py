"""Small stand-ins for the data files and for a BERT, made here and never downloaded."""

import gzip
import json
import random
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

WORDS = (
    *("hi", "hello", "what", "did", "you", "do", "today", "i", "saw", "a", "film", "about", "the", "sea", "and"),
    *("whales", "like", "it", "ok", "no", "yes", "lol", "never", "know"),
)
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
UNUSED = ["[unused0]", "[unused1]"]
CSV_HEADER = "id,query,reply,label\n"


def build_sentence(generator: random.Random, words: int) -> str:
    return " ".join(generator.choice(WORDS) for _ in range(words))


def save_tiny_bert(folder: Path) -> Path:
    vocabulary = {
        word: number
        for number, word in enumerate([*SPECIAL, *WORDS, "?", ".", *(f"word{number}" for number in range(80)), *UNUSED])
    }
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=64,
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    return folder


def build_dialogue(number: int, *, has_bot: bool, rating: int, turns: int = 6) -> dict[str, object]:
    """A ConvAI row; in a human-bot dialogue the human's entry is 0 and the rating stands under the bot's name."""
    generator = random.Random(number)
    return {
        "id": f"d{number}",
        "order": number,
        "participants": {"Alice": "human", "Bob": "bot" if has_bot else "human"},
        "ratings": {"Alice": {"engagement": 0 if has_bot else rating}, "Bob": {"engagement": rating}},
        "turns": [
            {
                "speaker": "AB"[turn % 2].replace("A", "Alice").replace("B", "Bob"),
                "text": build_sentence(generator, 2 + (number + turn) % 5),
                "thumb": (number + turn) % 3 if turn % 2 else 0,
            }
            for turn in range(turns)
        ],
    }


def write_rows(path: Path, rows: list[object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def write_data(folder: Path) -> Path:
    """Every file of the engagement data, small, under its published name."""
    rows: list[object] = [
        build_dialogue(number, has_bot=number % 3 != 0, rating=1 + number % 5) for number in range(200)
    ]
    write_rows(folder / "convai2017.jsonl.gz", rows)
    generator = random.Random(1)
    texts = [
        {"source": f"s{number % 2}", "turns": [build_sentence(generator, 5) for _ in range(6)]} for number in range(40)
    ]
    write_rows(folder / "dialogue_text.jsonl.gz", list(texts))
    published = folder / "predictive_engagement"
    published.mkdir()
    (published / "50convs_AMT.txt").write_text("d0\t4\nd1\t2\n", encoding="utf-8")
    for name, pairs in (("humanAMT_engscores_utt", 40), ("DD_finetune_train", 20), ("DD_finetune_valid", 10)):
        lines = [
            f"{number},{build_sentence(generator, 4)},{build_sentence(generator, 1 + number % 6)},{number % 2}\n"
            for number in range(pairs)
        ]
        (published / f"{name}.csv").write_text(CSV_HEADER + "".join(lines), encoding="utf-8")
    return folder
