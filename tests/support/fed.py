"""FED for tests: bundles, paths through follow-ups, and turns."""

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from turnscore_core.inference.onnx_backend import padded_width
from turnscore_core.scorers.fed.scorer import FedScorer
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_models.bundle import Bundle
from turnscore_wire import Turn

from support.bundles import make_bundle


class PathBackend:
    """Reads the feeds as the graph must: `paths` holds, for each target, the tokens before it, by position, and it.

    The loss of a target is a hash of that path, so that two ways of packing agree exactly if their paths do.
    """

    inputs = ()
    outputs = ()

    def __init__(self):
        self.paths = []
        self.tokens_fed = 0

    @property
    def joint(self):
        return self

    def round_width(self, longest):
        return padded_width(longest)

    def open_part(self, graph):
        return self

    def run(self, feeds):
        trunks, width = feeds["trunk_ids"].shape
        self.tokens_fed += feeds["trunk_ids"].size + feeds["branch_ids"].size
        self.paths = []
        for place, target in zip(feeds["target_predictor"], feeds["target_ids"], strict=True):
            where = int(feeds["predictors"][place])
            if where < trunks * width:
                row, column = divmod(where, width)
                seen = feeds["trunk_ids"][row, : column + 1].tolist()
            else:
                seen = self._branch_path(feeds, *divmod(where - trunks * width, feeds["branch_ids"].shape[1]))
            self.paths.append((*seen, int(target)))
        return {"loss": np.array([path_loss(path) for path in self.paths], np.float32)}

    def _branch_path(self, feeds, row, column):
        start = int(feeds["branch_start"][row])
        seen = feeds["trunk_ids"][feeds["branch_trunk"][row], :start].tolist()
        ends, positions = feeds["branch_ends"][row], feeds["branch_positions"][row]
        ancestors = [each for each in range(column + 1) if ends[each] >= column]
        assert positions[ancestors].tolist() == list(range(start, start + len(ancestors)))
        return seen + feeds["branch_ids"][row, ancestors].tolist()


def path_loss(path):
    """A loss between 0 and 10 that any change of the path changes."""
    return (hash(path) % 10_007) / 1000.7


EOS = 256
QUALITIES = {
    "kind": {"positive": ["Thanks!", "That's nice."], "negative": ["That's rude!", "How rude."]},
    "clear": {"positive": [], "negative": ["What?", "That makes no sense!"]},
}
REFERENCE = np.array([[0.0, 0.0], [1.0, 2.0], [2.0, 4.0]])


def save_byte_tokenizer(path):
    """Every byte a token; the end-of-text token is number 256."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(path))


def make_fed_bundle(folder, window=1024, **options):
    """Written without its checksums being taken: the scorer alone is tested with it."""
    bundle = make_bundle(folder, name="fed", kind="fed")
    save_byte_tokenizer(folder / "tokenizer.json")
    np.savez(folder / "reference.npz", response_only=REFERENCE, whole_sequence=REFERENCE)
    described = {
        "qualities": QUALITIES, "default_qualities": ["kind", "clear"], "eos_id": EOS,
        "reference": "reference.npz", **options,
    }  # fmt: skip
    files = {**bundle.manifest.files, "reference.npz": "0" * 64}
    manifest = bundle.manifest.model_copy(update={"options": described, "token_limit": window, "files": files})
    return Bundle(folder, manifest)


def make_fed_scorer(folder, window=1024, **options):
    backend = PathBackend()
    return FedScorer(make_fed_bundle(folder, window, **options), backend), backend


DIALOGUE = ["hi", "hello", "how are you?", "fine", "and your dog?", "my dog died"]


def turn(texts, options=None):
    speakers = ["user", "system"]
    context = [Turn(speaker=speakers[place % 2], text=text) for place, text in enumerate(texts[:-1])]
    return TurnToScore(context, texts[-1], options=options)


def score(scorer, turns):
    packs = scorer.encode(turns)
    places = [place for pack in packs for place in pack.answers]
    found = dict(zip(places, scorer.score(packs), strict=True))
    return [found[place] for place in range(len(turns))]
