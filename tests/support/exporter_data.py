"""Data sets and checkpoints made for the exporters' tests."""

import gzip
import json
import random

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from turnscore_core.scorers.fed.questions import FedBundleOptions
from turnscore_core.scorers.scorer import RawScore, TokenPack
from turnscore_exporters.fed.bundle import REFERENCE_FILE, FedExport, export_fed, read_qualities
from turnscore_exporters.fed.language_model import END_OF_TEXT, save_tokenizer, train_tokenizer
from turnscore_exporters.fed.model import load_checkpoint
from turnscore_exporters.options import FedExportOptions
from turnscore_wire import TokenCount

from support.fakes import FakeScorer

WORDS = (
    *("hi", "hello", "what", "did", "you", "do", "today", "i", "saw", "a", "film", "about", "the", "sea", "and"),
    *("whales", "like", "it", "ok", "no", "yes", "lol", "never", "know"),
)
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
UNUSED = ["[unused0]", "[unused1]"]
SHAPE = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128,
    "max_position_embeddings": 64,
}  # fmt: skip


def build_sentence(generator, words):
    return " ".join(generator.choice(WORDS) for _ in range(words))


def save_tiny_bert(folder):
    words = [*SPECIAL, *WORDS, "?", ".", *(f"word{number}" for number in range(80)), *UNUSED]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=len(vocabulary), **SHAPE)
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    return folder


def build_dialogue(number, *, has_bot, rating, turns=6):
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


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


ANSWERS = ("no", "i like it", "what do you mean ?", "not really , i never did", "bye", "you are a stupid film")


def build_turns(number, turns):
    """User and system in turns, the user first; the system asks something every now and then."""
    generator, said = random.Random(number), []
    for place in range(turns):
        if place % 2 or place == 0:
            text = build_sentence(generator, 2 + (number + place) % 5) + (" ?" if place % 4 == 1 else "")
        else:
            text = generator.choice(ANSWERS)
        said.append({"speaker": ("user", "system")[place % 2], "text": text})
    return said


def write_sentiment_data(folder):
    """Every file that the default descriptions name, and the development set, small."""
    write_rows(
        folder / "dstc9_interactive.jsonl.gz",
        [{"id": f"d{number}", "system": number % 3, "turns": build_turns(number, 8)} for number in range(50)],
    )
    write_rows(
        folder / "convai2017.jsonl.gz",
        [build_dialogue(number, has_bot=number % 3 != 0, rating=3) for number in range(90)],
    )
    for name in ("free_run1", "free_run2", "icebreaker"):
        for outcome in ("pass", "fail"):
            rows = [
                {"model": ("A", "QualityControl")[number % 2], "turns": build_turns(number, 7)} for number in (1, 2)
            ]
            write_rows(folder / "human_assessment" / f"{name}_{outcome}.jsonl.gz", list(rows))
    generator = random.Random(1)
    texts = [{"source": "people", "turns": [build_sentence(generator, 4) for _ in range(6)]} for _ in range(5)]
    write_rows(folder / "dialogue_text.jsonl.gz", list(texts))
    judged = []
    for number in range(10):
        turns = [*build_turns(number, 6)]
        for place in range(1, 6, 2):
            turns[place]["breakdown_votes"] = {"O": 30 - number - place, "T": 0, "X": number + place}
        judged.append({"id": f"j{number}", "system": "IRIS", "turns": turns})
    write_rows(folder / "dbdc3_dev.jsonl.gz", judged)
    return folder


class OracleScorer(FakeScorer):
    """`value` is the number that ends a response: a perfect scorer. Packs the turns of a dialogue, last one first."""

    KIND = "oracle"

    def encode(self, turns):
        packs = []
        for start in range(0, len(turns), 2):
            places = range(start, min(start + 2, len(turns)))[::-1]
            rows = tuple((int(turns[place].response.split()[-1]), len(turns[place].context)) for place in places)
            packs.append(
                TokenPack(rows=rows, answers=tuple(places), tokens=tuple(TokenCount(used=2, dropped=0) for _ in places))
            )
        return packs[::-1]

    def score(self, batch):
        return [
            RawScore(row[0] / 100, {"worse": -row[0] / 100, "earlier": -float(row[1])})
            for pack in batch
            for row in pack.rows
        ]


def build_judged(number, *, pairs=4, system=None, quality=None):
    """A row that the system opens; its first turn is not judged. Each response ends with 100 times its quality."""
    generator = random.Random(number)
    turns = [{"speaker": "system", "text": f"hello {generator.randrange(100)}"}]
    for _ in range(pairs):
        found = generator.randrange(100)
        words = ["word"] * generator.randrange(1, 9)
        turns.append({"speaker": "user", "text": "and?"})
        turns.append({"speaker": "system", "text": " ".join([*words, str(found)]), "quality": found / 100})
    row = {"id": f"d{number}", "system": system, "turns": turns, "quality": quality}
    return {name: value for name, value in row.items() if value is not None}


def write_judged(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


ROBERTA_MARKS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def save_tiny_masked(folder, family):
    return _save(
        folder, family, {"bert": transformers.BertForMaskedLM, "roberta": transformers.RobertaForMaskedLM}[family], {}
    )


def save_tiny_pair(folder, family, labels=1):
    kinds = {
        "bert": transformers.BertForSequenceClassification,
        "roberta": transformers.RobertaForSequenceClassification,
    }
    return _save(folder, family, kinds[family], {"num_labels": labels})


def _save(folder, family, kind, extra):
    if family == "bert":
        save_tiny_bert(folder)
        tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
        tokenizer.mask_token = "[MASK]"
        config = transformers.BertConfig(vocab_size=len(tokenizer), **SHAPE, **extra)
    else:
        tokenizer = _roberta_tokenizer()
        config = transformers.RobertaConfig(
            vocab_size=len(tokenizer), pad_token_id=1, bos_token_id=0, eos_token_id=2, type_vocab_size=1,
            **SHAPE, **extra,
        )  # fmt: skip
    torch.manual_seed(0)
    tokenizer.save_pretrained(folder)
    kind(config).save_pretrained(folder)
    return folder


def _roberta_tokenizer():
    """Byte-level, of whole words: what is not known is spelt in bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*WORDS, *(f"\u0120{word}" for word in WORDS)]
    vocabulary = {token: number for number, token in enumerate([*ROBERTA_MARKS, *alphabet])}
    merges = []
    for word in words:
        for end in range(2, len(word) + 1):
            if word[:end] not in vocabulary:
                vocabulary[word[:end]] = len(vocabulary)
                merges.append((word[: end - 1], word[end - 1]))
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>",
        mask_token="<mask>", cls_token="<s>", sep_token="</s>",
    )  # fmt: skip


def save_tiny_dialogpt(folder, positions=1024):
    """`config.json`, `pytorch_model.bin`, `vocab.json`, `merges.txt`; random weights, large enough to matter."""
    generator = random.Random(0)
    sentences = [" ".join(generator.choices((*WORDS, "That's", "really", "interesting!"), k=8)) for _ in range(300)]
    tokenizer = train_tokenizer(sentences, 420)
    save_tokenizer(tokenizer, folder)
    (folder / "tokenizer.json").unlink()
    torch.manual_seed(0)
    eos_id = tokenizer.token_to_id(END_OF_TEXT)
    size = {"vocab_size": tokenizer.get_vocab_size(), "n_positions": positions, "n_embd": 64, "n_layer": 2, "n_head": 4}
    config = transformers.GPT2Config(**size, initializer_range=0.2, bos_token_id=eos_id, eos_token_id=eos_id)
    model = transformers.GPT2LMHeadModel(config)
    config.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    return folder


def export_tiny_fed(checkpoint, folder, graphs, names=None, count=100):
    """A bundle of `save_tiny_dialogpt`'s checkpoint with these qualities or all 18, and so many made-up turns."""
    loaded, shipped = load_checkpoint(str(checkpoint)), read_qualities()
    options = FedBundleOptions(
        qualities={name: shipped.qualities[name] for name in names or shipped.qualities},
        default_qualities=tuple(names or shipped.default), eos_id=loaded.eos_id, reference=REFERENCE_FILE,
    )  # fmt: skip
    turns = [(f"hi {number}", "what did you do?", "I saw whales " * (number % 4)) for number in range(count)]
    asked = FedExportOptions(checkpoint=str(checkpoint), version="1.0.0", graph=list(graphs))
    return export_fed(FedExport(checkpoint=loaded, options=options, reference=turns, asked=asked), folder)


class PublishedFed:
    """One forward pass for each follow-up over one string, with transformers' own tokenizer and loss."""

    def __init__(self, folder):
        self.model = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def rate(self, texts, qualities, join, window=1024):
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

    def _piece(self, text, join):
        return END_OF_TEXT + (text.strip() if join == "stripped" else f" {text} ")

    def _last(self, text, join):
        return text if join == "stripped" else f" {text}"

    def encode(self, text):
        return self.tokenizer(text)["input_ids"]

    def _cut(self, context, room):
        eos_id = self.tokenizer.eos_token_id
        if len(context) > room:
            context = context[-room:]
            context[0] = eos_id
        return context

    def _losses(self, context, row):
        ids = torch.tensor([context + row])
        response = ids.clone()
        response[:, : len(context)] = -100
        with torch.inference_mode():
            whole = self.model(input_ids=ids, labels=ids)
            loss = self.model.loss_function(whole.logits, response, vocab_size=whole.logits.shape[-1])
        return {"whole_sequence": float(whole.loss), "response_only": float(loss)}


def _mean(losses, texts, loss):
    return sum(losses[text][loss] for text in texts) / len(texts) if texts else 0.0
