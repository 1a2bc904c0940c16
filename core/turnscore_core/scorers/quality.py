"""Quality: would people call this turn good? One BERT reads every text, and the response attends to its context.

The heads say whether the response is relevant, fluent and engaging, with what sentiment the user goes on and whether at
all, and what people would say overall. The value is made of them by the bundle's formula: a calibrated probability.
"""

import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise
from math import log, tanh
from operator import attrgetter
from pathlib import Path
from typing import Annotated, ClassVar, Literal, cast
from weakref import ref

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator
from turnscore_models.bundle import Bundle, read_document
from turnscore_models.manifest import Calibration
from turnscore_wire import Turn

from turnscore_core.inference.onnx_backend import NUMPY_TYPES, Array, Backend, pad_rows, padded_width
from turnscore_core.inference.tokenizer import TextTokenizer
from turnscore_core.kept_vectors import KeptVectors, Vectors, VectorStore
from turnscore_core.scorers.history import CHARS_PER_TOKEN, FEWEST_CHARS, history_of, keep_ends, keep_ends_of
from turnscore_core.scorers.scorer import (
    PERCENTILE_SUFFIX,
    Fields,
    RawScore,
    Scorer,
    TokenPack,
    TurnToScore,
    context_fields,
    interpolate,
    pack_turn,
)
from turnscore_core.scorers.turn_warnings import (
    NOT_IN_LANGUAGE,
    REPEAT_TURNS,
    STUCK,
    STUCK_FROM,
    TAIL_CHARS,
    Suspect,
    find_repeats,
    find_suspect,
    is_foreign,
)

Head = Literal["relevant", "fluent", "engaging", "sentiment", "continues", "overall"]
HEADS: tuple[Head, ...] = ("relevant", "fluent", "engaging", "sentiment", "continues", "overall")
"""What the heads say of a response: probabilities, and the sentiment from about -1 to 1."""
FEATURES = "features"
"""The encoder's output [pairs, columns], and the only input of every set of heads on it."""
RESPONSE, CONTEXT = "response", "context"
"""The roles in which the encoder's second graph reads a text, and the beginnings of its inputs' names."""
KEPT_RESPONSE_TOKENS = 18
"""A longer response is not kept as such, which takes three times the bytes. Measured on DSTC9: 9 % of the replies were
given before, with 5 % of the words; nearly all of them are short."""
_KEPT_PASS_HEADS = 1024
"""Heads that stay laid out, of all sets of scorers that were asked together: 17 MB of linear ones. Chosen."""
TOKENS_PER_KEPT = 6
"""Context tokens that take the second graph as long as one takes the first. Measured: 14 and 87 us. Without a count, a
batch of 1,024 tokens read 24,000 of kept context, and took 860 MB."""

ROW_MARKS = 2
"""[CLS] and [SEP]."""
CONTEXT_ROWS = 4
"""Context turns that a model may read, which the places of `lay_out_tokens` count."""
COMPARED_ROWS = 3
"""Of them, those whose mean vectors the graph compares with the response's: its `context_rows`."""
OLDER = "older"
"""As what texts are counted that are looked for in kept vectors only to see whether a conversation is stuck."""
_ROWS_AT_ONCE = 16
"""About a batch of 1,024 tokens, where they are as long as they may be."""
NO_ROW = -1
"""In the place of a context turn or token that there is not."""

TokenIds = tuple[int, ...]
SaidTokens = Sequence[tuple[bool, Sequence[int]]]
"""Of each context turn, oldest first, whether the response's speaker said it, and its token ids."""
ReadVectors = dict[str, dict[TokenIds, Vectors]]
"""By role, what the first graph gave for each text."""
Floats = NDArray[np.float64]


class RowLayout(BaseModel):
    """How a turn becomes rows. Every text has a row of its own: a long response takes none of its context's room."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    context_turns: PositiveInt = Field(4, le=CONTEXT_ROWS, description="How many of the latest context turns are read.")
    turn_tokens: PositiveInt = Field(64, description="Tokens of a context turn that are read, from its end.")
    response_tokens: PositiveInt = Field(254, description="Tokens of a response that are read.")
    response_end_tokens: int = Field(
        64, ge=0, description="How many of these are the last ones of a longer response, whose middle is not read."
    )

    @property
    def row_tokens(self) -> int:
        """The longest row."""
        return max(self.turn_tokens, self.response_tokens) + ROW_MARKS


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRows:
    """The rows of one turn: of the response, and of the latest context turns, the latest first.

    `same_speaker` says of each context row whether the response's speaker said it. `context_dropped` and
    `response_dropped` count tokens that are in no row. `suspect_rows` are those of the `suspect`'s texts.
    """

    response: TokenIds
    context: tuple[TokenIds, ...]
    same_speaker: tuple[bool, ...]
    context_dropped: int
    response_dropped: int
    suspect: Suspect | None = None
    suspect_rows: tuple[TokenIds, ...] = ()

    def sameness(self, means: Mapping[TokenIds, Floats]) -> float:
        """That of the suspect, or 0 without one."""
        return 0.0 if self.suspect is None else self.suspect.sameness([means.get(row) for row in self.suspect_rows])


def lay_out_rows(
    context: SaidTokens, response: Sequence[int], layout: RowLayout, first: int, separator: int
) -> TurnRows:
    """The rows of a response (token ids) and its context.

    `context` has, for each turn, oldest first, whether the response's speaker said it, and its token ids, none empty.
    """
    latest = context[-layout.context_turns :][::-1]
    rows = [(first, *ids[-layout.turn_tokens :], separator) for _, ids in latest]
    read = list(response)
    if len(read) > layout.response_tokens:
        end = min(layout.response_end_tokens, layout.response_tokens - 1)
        read = [*read[: layout.response_tokens - end], *read[len(read) - end :]]
    return TurnRows(
        response=(first, *read, separator),
        context=tuple(rows),
        same_speaker=tuple([same for same, _ in latest]),
        context_dropped=sum([len(ids) for _, ids in context]) + ROW_MARKS * len(rows) - sum(map(len, rows)),
        response_dropped=len(response) - len(read),
    )


def lay_out_tokens(turns: Sequence[TurnRows], begins: Mapping[TokenIds, int]) -> tuple[Array, Array]:
    """The joint graph's `context_tokens` and `places`, int64 [turns, most context tokens of a turn].

    `begins` has the number of each context row's first token among the tokens of all of them; NO_ROW is where a turn
    has no more. A token's place says how far back it was said (0 for the latest turn) and by whom: twice the distance,
    plus 1 where the response's speaker said it.
    """
    most = padded_width(max([1, *[sum(map(len, turn.context)) for turn in turns]]))
    tokens = np.full((len(turns), most), NO_ROW, dtype=np.int64)
    places = np.zeros((len(turns), most), dtype=np.int64)
    for number, turn in enumerate(turns):
        end = 0
        for distance, (row, same) in enumerate(zip(turn.context, turn.same_speaker, strict=True)):
            begin, end = end, end + len(row)
            tokens[number, begin:end] = np.arange(begins[row], begins[row] + len(row))
            places[number, begin:end] = 2 * distance + same
    return tokens, places


class SplitEncoder:
    """The encoder in two graphs: the first reads each text alone, the second a response and its context together.

    What the first gives for a text may be kept and used again. That changes no bit of a turn's features: neither
    graph's results depend on padding, which is always last, or on what else is in the batch.
    """

    def __init__(self, rows: Backend, joint: Backend, pad_id: int, turn_tokens: int) -> None:
        """`turn_tokens` are those of the longest row of a context text, with its marks."""
        self._rows, self._joint = rows, joint
        self._pad_id, self._turn_tokens = pad_id, turn_tokens
        self.kept = VectorStore(max_bytes=0).of("")
        """Where it keeps what it computes of texts, and looks for it."""
        axes = {each.name: each.shape for each in rows.outputs}
        self._inputs: dict[str, list[tuple[str, bool]]] = {RESPONSE: [], CONTEXT: []}
        """By role, the outputs of the first graph that the second reads, and whether each has a vector a token."""
        self._no_context: dict[str, Array] = {}
        """What stands for context where there is none: no token of it is named, but the graph needs one."""
        for each in sorted(joint.inputs, key=attrgetter("name")):  # as kept vectors are for every second graph
            role, _, name = each.name.partition("_")
            if role in self._inputs and name in axes:
                self._inputs[role].append((name, axes[name][1] == "tokens"))
                if role == CONTEXT:
                    sizes = [axis if isinstance(axis, int) else 1 for axis in each.shape]
                    self._no_context[each.name] = np.zeros(sizes, NUMPY_TYPES[each.dtype])

    def run(self, turns: Sequence[TurnRows], vectors: ReadVectors | None = None) -> Array:
        """The features of a batch of turns, in order, of which `read` may have given the `vectors`."""
        return self._joint.run(self.prepare(turns, vectors))[FEATURES]

    def read_ahead(self, turns: Sequence[TurnRows]) -> None:
        """Reads and keeps the contexts of turns."""
        self._read_context(dict.fromkeys(row for turn in turns for row in turn.context))

    def measure_sameness(self, turns: Sequence[TurnRows], vectors: ReadVectors) -> list[float]:
        """Of each turn that is a suspect the sameness, of any other 0, from the vectors that `read` gave.

        Older texts are found or computed only for a turn that may still be stuck by those.
        """
        suspects = [turn for turn in turns if turn.suspect is not None]
        rows = dict.fromkeys(row for turn in suspects for row in turn.suspect_rows)
        known = {row: self._mean_of(role, read[row]) for role, read in vectors.items() for row in rows if row in read}
        hopeful = [turn for turn in suspects if turn.sameness(known) >= STUCK_FROM]
        known |= self.find_means(row for turn in hopeful for row in turn.suspect_rows if row not in known)
        return [turn.sameness(known) for turn in turns]

    def find_means(self, rows: Iterable[TokenIds]) -> dict[TokenIds, Floats]:
        """The mean vectors of texts, of length 1, found or computed."""
        return {row: self._mean_of(CONTEXT, each) for row, each in self._read_context(rows, OLDER).items()}

    def _mean_of(self, role: str, vectors: Vectors) -> Floats:
        """It is the first half of what the second graph compares."""
        pooled = vectors[[name for name, _ in self._inputs[role]].index("pooled")]
        return pooled[: (len(pooled) - 1) // 2].astype(np.float64)

    def read(self, turns: Sequence[TurnRows]) -> ReadVectors:
        """By role, the vectors of each text, found or computed. Equal texts, such as one context of many, are one."""
        responses = dict.fromkeys(map(attrgetter("response"), turns))
        context = dict.fromkeys(chain.from_iterable(map(attrgetter("context"), turns)))
        as_response = self.kept.find(RESPONSE, responses, RESPONSE)
        as_context = self.kept.find(CONTEXT, context, CONTEXT)
        missing = dict.fromkeys([row for row in responses if row not in as_response])
        missing |= dict.fromkeys([row for row in context if row not in as_context])
        if missing:
            computed = self._compute(list(missing))
            self.kept.keep(CONTEXT, {row: computed[CONTEXT][row] for row in missing if len(row) <= self._turn_tokens})
            short = [row for row in missing if row in responses and len(row) <= KEPT_RESPONSE_TOKENS]
            self.kept.keep(RESPONSE, {row: computed[RESPONSE][row] for row in short})
            as_response, as_context = computed[RESPONSE] | as_response, computed[CONTEXT] | as_context
        return {
            RESPONSE: {row: as_response[row] for row in responses},
            CONTEXT: {row: as_context[row] for row in context},
        }

    def _read_context(self, rows: Iterable[TokenIds], counted_as: str = CONTEXT) -> dict[TokenIds, Vectors]:
        """The vectors of texts as context, found, or computed and kept."""
        wanted = list(dict.fromkeys(rows))
        found = self.kept.find(CONTEXT, wanted, counted_as)
        missing = [row for row in wanted if row not in found]
        computed: dict[TokenIds, Vectors] = {}
        for start in range(0, len(missing), _ROWS_AT_ONCE):  # no queue has counted them
            computed |= self._compute(missing[start : start + _ROWS_AT_ONCE])[CONTEXT]
        self.kept.keep(CONTEXT, computed)
        return found | computed

    def _compute(self, rows: Sequence[TokenIds]) -> dict[str, dict[TokenIds, Vectors]]:
        ids, mask = pad_rows(rows, self._pad_id, self._rows.round_width)
        given = self._rows.run({"input_ids": ids, "attention_mask": mask})
        computed: dict[str, dict[TokenIds, Vectors]] = {RESPONSE: {}, CONTEXT: {}}
        for role, read in self._inputs.items():
            for place, row in enumerate(rows):
                own = [given[name][place, : len(row) if of_tokens else None] for name, of_tokens in read]
                computed[role][row] = tuple(own)
        return computed

    def prepare(self, turns: Sequence[TurnRows], vectors: ReadVectors | None = None) -> dict[str, Array]:
        """The second graph's inputs, for turns of which `read` may have given the `vectors`."""
        vectors = vectors or self.read(turns)
        responses, context = vectors[RESPONSE], vectors[CONTEXT]
        width = self._joint.round_width(max([len(turn.response) for turn in turns]))
        feeds = dict(self._no_context)
        of_turns = zip(*[responses[turn.response] for turn in turns], strict=True)
        for (name, of_tokens), each in zip(self._inputs[RESPONSE], of_turns, strict=True):
            if of_tokens:
                laid = np.zeros((len(turns), width, *each[0].shape[1:]), each[0].dtype)
                for number, own in enumerate(each):
                    laid[number, : len(own)] = own
            feeds[f"{RESPONSE}_{name}"] = laid if of_tokens else np.stack(each)
        for (name, of_tokens), said in zip(self._inputs[CONTEXT], zip(*context.values(), strict=True), strict=False):
            feeds[f"{CONTEXT}_{name}"] = np.concatenate(said)[np.newaxis] if of_tokens else np.stack(said)
        begins = dict(zip(context, accumulate(map(len, context), initial=0), strict=False))
        tokens, places = lay_out_tokens(turns, begins)
        numbers = {row: number for number, row in enumerate(context)}
        mask = np.zeros((len(turns), width), dtype=np.int64)
        compared = np.full((len(turns), COMPARED_ROWS), NO_ROW, dtype=np.int64)
        for number, turn in enumerate(turns):
            mask[number, : len(turn.response)] = 1
            latest = list(map(numbers.__getitem__, turn.context[:COMPARED_ROWS]))
            compared[number, : len(latest)] = latest
        # Of each turn, the numbers of its tokens among all places of responses and contexts, padding not among them.
        is_token = np.concatenate([mask, tokens != NO_ROW], axis=1)
        counts = is_token.sum(axis=1)
        order = np.full((len(turns), padded_width(int(counts.max()))), NO_ROW, dtype=np.int64)
        order[np.arange(order.shape[1]) < counts[:, np.newaxis]] = np.flatnonzero(is_token)
        return {
            **feeds,
            "response_mask": mask,
            "context_rows": compared,
            "context_tokens": tokens,
            "places": places,
            "key_order": order,
        }


Repeat = Literal["repeats_user", "repeats_itself"]
"""The warnings that a formula may count."""
_SENTIMENT = HEADS.index("sentiment")
_CLIP = 1e-4
"""A probability is kept so far from 0 and 1. Chosen."""


class ValueFormula(BaseModel):
    """How the heads become the value: sigmoid(bias + weighted heads - what repeats take), then the curve."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    weights: dict[Head, float] = Field(description="Of each probability's logit, and of the sentiment as it is.")
    bias: float
    repeats: dict[Repeat, Annotated[float, Field(ge=0)]] = Field(
        default={}, description="What the warning of that name takes from the weighed heads of a turn that carries it."
    )
    curve: Annotated[tuple[tuple[float, Annotated[float, Field(ge=0, le=1)]], ...], Field(min_length=2)] | None = Field(
        default=None, description="Points of a rising curve from what the sigmoid gives to the calibrated probability."
    )

    @model_validator(mode="after")
    def _curve_rises(self) -> "ValueFormula":
        points = self.curve or ()
        if any(low[0] >= high[0] or low[1] > high[1] for low, high in pairwise(points)):
            raise ValueError("the curve's points must rise")
        return self

    def weigh(self, heads: Floats) -> Floats:
        """Bias and weighted heads [turns] of heads [turns, heads]: the more, the higher the value."""
        weights = np.array([self.weights.get(name, 0.0) for name in HEADS])
        weighed: Floats = read_heads(heads) @ weights + self.bias
        return weighed

    def deduct(self, warnings: Container[str]) -> float:
        """What a turn's warnings take from what `weigh` gave for it."""
        return sum(taken for name, taken in self.repeats.items() if name in warnings)

    def value_of(self, heads: Mapping[str, float], warnings: Container[str]) -> float:
        """The value of one turn with these heads and warnings.

        `values_of` says the same of many but for the last digits, where products of many rows differ with their number.
        """
        weighed = self.bias - self.deduct(warnings) if warnings else self.bias
        for name, weight in self.weights.items():
            read = heads[name]
            if name != "sentiment":  # as `logits_of`
                clipped = min(max(read, _CLIP), 1 - _CLIP)
                read = log(clipped / (1 - clipped))
            weighed += weight * read
        value = _logistic(weighed)
        return value if self.curve is None else float(self._bend(np.array(value)))

    def values_of(self, weighed: Floats) -> Floats:
        """The values [turns] for what `weigh` gave, less what is deducted."""
        values: Floats = 1 / (1 + np.exp(-weighed))
        return values if self.curve is None else self._bend(values)

    def _bend(self, values: Floats) -> Floats:
        points = self.curve or ()
        return np.asarray(np.interp(values, [x for x, _ in points], [y for _, y in points]))


class HeadOptions(BaseModel):
    """What the `options` of every manifest of such heads say."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    layout: RowLayout = Field(description="That of the encoder's own bundle.")
    language: str = Field(default="en", description="Of the texts that the model was made for; only `en` is checked.")


class QualityOptions(HeadOptions):
    value: ValueFormula
    heads: str = Field(description="File with the calibration curve of every head, by its name.")


def _logistic(logit: float) -> float:
    """The logistic function; never overflows."""
    return 0.5 + 0.5 * tanh(0.5 * logit)


def logits_of(probabilities: Floats) -> Floats:
    """Their logits; int8 arithmetic says nothing of the nearest to 0 and 1."""
    clipped = np.clip(probabilities, _CLIP, 1 - _CLIP)
    logits: Floats = np.log(clipped / (1 - clipped))
    return logits


def read_heads(heads: Floats) -> Floats:
    """What the weights multiply, [turns, heads]: the logits of the probabilities, and the sentiment as it is."""
    read = logits_of(heads)
    read[:, _SENTIMENT] = heads[:, _SENTIMENT]
    return read


class HeadCurves(BaseModel):
    """The calibration curve of every head, over the same reference turns as the value's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    curves: dict[Head, Calibration]

    @model_validator(mode="after")
    def _is_complete(self) -> "HeadCurves":
        if missing := set(HEADS) - self.curves.keys():
            raise ValueError(f"no curve of {', '.join(sorted(missing))}")
        return self


@dataclass(frozen=True, slots=True)
class LinearHead:
    """A value between 0 and 1 from one product with a turn's features."""

    weights: Array  # float32 [columns]
    bias: float
    slope: float
    offset: float

    def read(self, features: Array) -> RawScore:
        """Of one turn by itself: a product with a matrix would give other last digits in another batch."""
        return RawScore(_logistic(self.slope * (float(self.weights.dot(features)) + self.bias) + self.offset))


class HeadScorer(Scorer):
    """What the scorers of heads on the split encoder share: from a turn to its features, and on to the heads."""

    HEADS: ClassVar[Sequence[str]]
    # Context turns in which a turn is looked for that was said before; where it is not, 0.
    looked_through: ClassVar[int] = 0
    linear: LinearHead | None = None  # where that is all of its heads

    def __init__(self, bundle: Bundle, backend: Backend, options: HeadOptions) -> None:
        """Opens the bundle's heads of this kind, on the features that the `backend` gives.

        Raises RuntimeError where the bundle has no such heads.
        """
        self._tokenizer = TextTokenizer.of(bundle.path_of(bundle.manifest.tokenizer))
        self._layout, self._language = options.layout, options.language
        self._kept_turns = max(self.looked_through, self._layout.context_turns)
        if (heads := bundle.manifest.heads.get(self.KIND)) is None:
            raise RuntimeError(f"its manifest has no heads {self.KIND!r}")
        if backend.joint is None:
            raise RuntimeError("its encoder's graph is not cut in two; export it again")
        longest = self._layout.turn_tokens + ROW_MARKS
        self._encoder = SplitEncoder(backend, backend.joint, self._tokenizer.pad_id, longest)
        self.pass_key = f"{self.speaker} {self.looked_through} {self._language} {self._layout.model_dump_json()}"
        self._pass_heads: dict[tuple[int, ...], _PassHeads] = {}
        self.open_heads(bundle.path_of(heads.file), backend)

    def open_heads(self, path: Path, backend: Backend) -> None:
        """Opens the file of heads, which `answer` asks."""
        self._heads = backend.open_part(path)

    def keep_vectors(self, kept: KeptVectors) -> None:
        """What the encoder computes of each text alone."""
        self._encoder.kept = kept

    def trim(self, turn: TurnToScore) -> TurnToScore:
        """The latest turns of the context, each from its end, and the response's beginning and end.

        The model reads few of them; in the others, of which less is kept, a repeated turn is looked for.
        """
        layout = self._layout
        latest, _ = history_of(turn.context).latest(turns=self._kept_turns, chars=sys.maxsize)
        first_read = len(latest) - layout.context_turns
        read_chars = [CHARS_PER_TOKEN * layout.turn_tokens] * min(len(latest), layout.context_turns)
        context, context_cut = keep_ends_of(latest, [TAIL_CHARS] * first_read + read_chars)
        response, response_cut, most = turn.response, False, CHARS_PER_TOKEN * layout.response_tokens
        if len(response) > most:
            response, response_cut = keep_ends(response, most, CHARS_PER_TOKEN * layout.response_end_tokens)
        return turn.trimmed(context, response, is_cut=first_read > 0 or context_cut, is_response_cut=response_cut)

    def max_turn_tokens(self, token_limit: int) -> int:
        """A row of the response, and one of each context turn that is read."""
        layout = self._layout
        return layout.response_tokens + ROW_MARKS + layout.context_turns * (layout.turn_tokens + ROW_MARKS)

    def estimate_tokens(self, turn: TurnToScore) -> int:
        """Tokens of all rows, from the characters of what they may hold."""
        layout = self._layout
        response = min(layout.response_tokens, len(turn.response) // FEWEST_CHARS + 1)
        said = [
            min(layout.turn_tokens, len(each.text) // FEWEST_CHARS + 1) + ROW_MARKS
            for each in turn.context[-layout.context_turns :]
        ]
        return response + ROW_MARKS + sum(said)

    def inputs_of(self, turn: TurnToScore) -> Fields:
        """The latest turns of the context and the response."""
        return (*context_fields(turn.context), turn.response)

    def for_queue(self, pack: TokenPack) -> TokenPack:
        """The response is new most often; what is kept of the context counts for what the second graph does with it."""
        response, *said = pack.rows
        known = self._encoder.kept.find(CONTEXT, said)
        context = [row[: -(-len(row) // TOKENS_PER_KEPT)] if row in known else row for row in said]
        return replace(pack, rows=(response, *context))

    def encode(self, turns: Sequence[TurnToScore]) -> list[TokenPack]:
        """One pack a turn, of a row for its response, then for each text of the context, latest first.

        Each distinct text is tokenized once.
        """
        may_be_stuck = self.speaker == "system" and self._language == "en"
        texts: list[str] = []
        found: list[tuple[list[Turn], Suspect | None]] = []
        for turn in turns:
            said = [each for each in turn.context if each.text.strip()]
            suspect = find_suspect(said, turn.response) if may_be_stuck else None
            texts += turn.response, *[each.text for each in said[-self._layout.context_turns :]]
            texts += () if suspect is None else suspect.texts
            found.append((said, suspect))
        ids = self._tokenizer.encode_each(texts)
        return [self._pack(place, turn, *found[place], ids) for place, turn in enumerate(turns)]

    def _pack(
        self, place: int, turn: TurnToScore, said: Sequence[Turn], suspect: Suspect | None, ids: Mapping[str, list[int]]
    ) -> TokenPack:
        layout, first, separator = self._layout, self._tokenizer.first_id, self._tokenizer.separator_id
        context = [
            (each.speaker == self.speaker, ids[each.text]) for each in said[-layout.context_turns :] if ids[each.text]
        ]
        response = ids[turn.response]
        laid = lay_out_rows(context, response, layout, first, separator)
        rows = (laid.response, *laid.context)
        warnings = find_repeats(said, turn.response) if self.looked_through else ()
        if self._language == "en" and is_foreign(turn.response, len(response)):
            warnings += (NOT_IN_LANGUAGE,)
        elif suspect is not None:
            of_suspect = [(first, *ids[text][-layout.turn_tokens :], separator) for text in suspect.texts]
            laid = replace(laid, suspect=suspect, suspect_rows=tuple(of_suspect))
        dropped, is_whole = laid.context_dropped + laid.response_dropped, not laid.response_dropped
        is_read = not context or len(context[-1][1]) <= layout.turn_tokens
        return pack_turn(
            place, rows, dropped, context_read=is_read, response_read=is_whole, warnings=warnings, structure=laid
        )

    def read_ahead(self, turn: TurnToScore) -> TokenPack | None:
        """Of the latest turn, as the context's row that it will be."""
        if not self._encoder.kept.has_room or not turn.context or not turn.context[-1].text.strip():
            return None
        [ids] = self._tokenizer.encode([turn.context[-1].text])
        if not ids:
            return None
        marks = self._tokenizer.first_id, self._tokenizer.separator_id
        laid = lay_out_rows([(False, ids)], (), self._layout, *marks)
        is_known = self._encoder.kept.find(CONTEXT, laid.context)
        return None if is_known else TokenPack(rows=laid.context, answers=(), tokens=(), structure=laid)

    def score(self, batch: Sequence[TokenPack]) -> list[RawScore]:
        """One score a turn; none for what is only read."""
        if ahead := [pack for pack in batch if not pack.answers]:
            self._encoder.read_ahead(list(map(attrgetter("structure"), ahead)))
            batch = [pack for pack in batch if pack.answers]
        if not batch:
            return []
        turns: list[TurnRows] = list(map(attrgetter("structure"), batch))
        vectors = self._encoder.read(turns)
        features = self._encoder.run(turns, vectors)
        if any(map(attrgetter("scorers"), batch)):
            scores = self._conclude_all(batch, features)
        else:
            scores = self.read_features(batch, features)
        if not any(map(attrgetter("suspect"), turns)):
            return scores
        sameness = self._encoder.measure_sameness(turns, vectors)
        same = chain.from_iterable([each] * len(pack.answers) for each, pack in zip(sameness, batch, strict=True))
        return [
            replace(score, warnings=(STUCK,)) if each >= STUCK_FROM else score
            for score, each in zip(scores, same, strict=True)
        ]

    def _conclude_all(self, batch: Sequence[TokenPack], features: Array) -> list[RawScore]:
        """A score for each answer of the packs, by their own scorers or else by this one."""
        together: dict[tuple[Scorer, ...], list[int]] = {}
        for place, pack in enumerate(batch):
            together.setdefault(pack.scorers or (self,), []).append(place)
        if len(together) == 1:
            return list(chain.from_iterable(self._heads_of(*together).answer(batch, features)))
        found = [
            zip(
                places,
                self._heads_of(scorers).answer([batch[place] for place in places], features[places]),
                strict=True,
            )
            for scorers, places in together.items()
        ]
        answers = dict(chain.from_iterable(found))
        return [answer for place in range(len(batch)) for answer in answers[place]]

    def _heads_of(self, scorers: tuple[Scorer, ...]) -> "_PassHeads":
        """The heads of scorers that a pass answers for; those of some such passes are kept as they are laid out."""
        key = tuple(map(id, scorers))
        heads = self._pass_heads.get(key)
        if heads is None or not heads.are_of(scorers):
            if sum(map(len, self._pass_heads)) + len(scorers) > _KEPT_PASS_HEADS:
                self._pass_heads.clear()
            heads = self._pass_heads[key] = _PassHeads(cast("tuple[HeadScorer, ...]", scorers))
        return heads

    def read_features(self, batch: Sequence[TokenPack], features: Array) -> list[RawScore]:
        """The scores of turns whose features [turns, columns] these are."""
        raise NotImplementedError

    def compute_features(self, batch: Sequence[TokenPack]) -> Array:
        """What the encoder alone gives for every pack, in order, [turns, columns]: any set of heads on it reads that.

        Equal texts of a batch are computed once, and texts whose vectors are kept not at all.
        """
        return self._encoder.run(list(map(attrgetter("structure"), batch)))

    def answer(self, features: Array) -> Floats:
        """The heads [turns, heads] for features [turns, columns]."""
        outputs = self._heads.run({FEATURES: features})
        heads: Floats = np.stack([outputs[name] for name in self.HEADS], axis=1).astype(np.float64)
        return heads


class _PassHeads:
    """The heads of a pass's scorers, in their order. Keeps none of the scorers.

    Linear ones lie in one piece: between two passes the graphs' weights fill the processor's caches, and to fetch what
    every scorer has of its own takes longer than to compute with it.
    """

    def __init__(self, scorers: Sequence[HeadScorer]) -> None:
        self._scorers = [ref(scorer) for scorer in scorers]
        self._others = [place for place, scorer in enumerate(scorers) if scorer.linear is None]
        heads = [scorer.linear for scorer in scorers if scorer.linear is not None]
        weights = np.stack([head.weights for head in heads]) if heads else ()
        self._linear = [replace(head, weights=row) for head, row in zip(heads, weights, strict=True)]

    def are_of(self, scorers: tuple[Scorer, ...]) -> bool:
        return [each() for each in self._scorers] == list(scorers)

    def answer(self, batch: Sequence[TokenPack], features: Array) -> list[list[RawScore]]:
        """Of each pack, whose features [packs, columns] these are, what every scorer says."""
        found = [[head.read(turn) for head in self._linear] for turn in features]
        for place in self._others:
            scorer = cast("HeadScorer", self._scorers[place]())
            for scores, own in zip(found, scorer.read_features(batch, features), strict=True):
                scores.insert(place, own)
        return found


class QualityScorer(HeadScorer):
    """Probability, 0 to 1, that people call the turn good, with its heads in `details`."""

    KIND: ClassVar[str] = "quality"
    HEADS: ClassVar[Sequence[str]] = HEADS
    looked_through: ClassVar[int] = REPEAT_TURNS
    reason_heads: Sequence[str] = tuple(name for name in HEADS if name != "overall")

    def __init__(self, bundle: Bundle, backend: Backend) -> None:
        """Raises RuntimeError as HeadScorer does and for wrong options, InvalidManifestError for wrong curves."""
        options = bundle.read_options(QualityOptions)
        curves = read_document(HeadCurves, bundle.path_of(options.heads)).curves
        self._formula = options.value
        self._curves = [(f"{name}{PERCENTILE_SUFFIX}", tuple(curves[name].percentiles)) for name in HEADS]
        super().__init__(bundle, backend, options)

    def read_features(self, batch: Sequence[TokenPack], features: Array) -> list[RawScore]:
        """The value of each turn, with its heads and their percentiles."""
        scores = []
        for pack, values in zip(batch, self.answer(features).tolist(), strict=True):
            details: dict[str, float] = dict(zip(HEADS, values, strict=True))
            value = self._formula.value_of(details, pack.warnings[0])
            for head, (name, curve) in zip(values, self._curves, strict=True):
                details[name] = interpolate(head, curve)
            scores.append(RawScore(value, details))
        return scores
