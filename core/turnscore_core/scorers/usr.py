"""USR (Mehri and Eskenazi 2020): is each word of the response expected, does it fit what was said, does it use a fact?

Two models in one graph. The masked one reads a copy of the row for every token of the response, each without that token
alone, so that its mean log probability is exact. The retrieval one says if a response fits the turn before it, and
where the caller gives facts, if it fits one of these. Without facts there is no such part.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, JsonValue, PositiveFloat
from turnscore_models.bundle import Bundle

from turnscore_core.errors import InvalidRequestError
from turnscore_core.inference.onnx_backend import Backend
from turnscore_core.scorers.relevance import JointScorer, RelevanceOptions, estimate_text, masked_copies
from turnscore_core.scorers.scorer import Fields, RawScore, TokenPack, TokenRow, TurnToScore

KIND = "usr"
MASKED, RETRIEVAL, FACTS = "mlm", "retrieval", "facts"
MOST_FACTS, MOST_FACT_CHARS = 8, 256  # specified: docs/models/baselines.md#facts
# Before the names of the two models' inputs and outputs in the graph.
MASKED_INPUTS, RETRIEVAL_INPUTS = "masked_", "retrieval_"
TOKENS_AT_ONCE = 2048  # of masked copies in one run, padding included: more would only take more memory

Floats = NDArray[np.float64]


class PartWeight(BaseModel):
    """How a part enters the value: (part - center) / scale x weight."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    center: FiniteFloat
    scale: PositiveFloat
    weight: FiniteFloat


class UsrFormula(BaseModel):
    """A regression on people's ratings."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    parts: Annotated[dict[str, PartWeight], Field(min_length=1)]
    bias: FiniteFloat

    def apply(self, found: Mapping[str, float]) -> float:
        return self.bias + sum((found[name] - p.center) / p.scale * p.weight for name, p in self.parts.items())


class UsrOptions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    overall: UsrFormula = Field(description="Of `mlm` and `retrieval`.")
    overall_with_facts: UsrFormula | None = Field(
        default=None, description="Of these and `facts`, for turns with facts; without it, facts change no value."
    )
    response_tokens: int = Field(default=32, ge=1, le=128, description="Each is masked in a copy of the row.")


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the rows of a pack are to be read: masked copies first, then one for the retrieval, then one a fact."""

    places: tuple[int, ...]
    targets: tuple[int, ...]
    starts: tuple[int, ...]  # where the response begins in each row

    @property
    def copies(self) -> int:
        return len(self.places)


class UsrScorer(JointScorer):
    """What people would call the turn, by USR's regression; its parts in `details`."""

    KIND: ClassVar[str] = KIND
    option_limits = MappingProxyType({FACTS: MOST_FACTS, "fact_chars": MOST_FACT_CHARS})

    def __init__(self, bundle: Bundle, backend: Backend) -> None:
        """Raises RuntimeError where the manifest's options are wrong or the tokenizer has no mask."""
        self._options = bundle.read_options(UsrOptions)
        layout = RelevanceOptions(form="joint", response_tokens=self._options.response_tokens)
        super().__init__(bundle, backend, layout)
        if self._tokenizer.mask_id is None:
            raise RuntimeError(f"{bundle.manifest.tokenizer} has no mask")
        self._mask = self._tokenizer.mask_id

    def read_options(self, options: Mapping[str, JsonValue]) -> tuple[str, ...]:
        """`facts`: at most 8 texts of at most 256 characters. Raises InvalidRequestError for anything else."""
        for name in options:
            if name != FACTS:
                raise InvalidRequestError("usr has no such option", field=name)
        facts = options.get(FACTS, [])
        if not isinstance(facts, list):
            raise InvalidRequestError("must be a list of texts", field=FACTS)
        if len(facts) > MOST_FACTS:
            raise InvalidRequestError(f"{len(facts)} facts; at most {MOST_FACTS} are allowed", field=FACTS)
        return tuple(_read_fact(fact, place) for place, fact in enumerate(facts))

    def estimate_tokens(self, turn: TurnToScore) -> int:
        """Tokens of all copies and rows, from the texts' sizes."""
        response = min(self._options.response_tokens, estimate_text(turn.response))
        row = super().estimate_tokens(turn)
        facts = sum(self.estimate_row([fact, turn.response]) for fact in _facts_of(turn))
        return response * row + row + facts

    def inputs_of(self, turn: TurnToScore) -> Fields:
        return self.said_before(turn), turn.response, _facts_of(turn)

    def encode(self, turns: Sequence[TurnToScore]) -> list[TokenPack]:
        read = [(self.said_before(turn), turn.response, _facts_of(turn)) for turn in turns]
        ids = self._tokenizer.encode_each(text for said, response, facts in read for text in (*said, response, *facts))
        return [
            self._pack(place, [ids[text] for text in said], ids[response], [ids[text] for text in facts])
            for place, (said, response, facts) in enumerate(read)
        ]

    def score(self, batch: Sequence[TokenPack]) -> list[RawScore]:
        """Value and parts of each turn. A response without tokens has no `mlm`, and its score compares with none."""
        logs, fits = iter(self._log_probabilities(batch)), iter(self._probabilities(batch))
        scores = []
        for pack in batch:
            plan = pack.structure
            found = list(islice(logs, plan.copies))
            fitting, *facts = islice(fits, len(pack.rows) - plan.copies)
            scores.append(self._score(float(np.mean(found)) if found else None, fitting, facts))
        return scores

    def _score(self, masked: float | None, fitting: float, facts: Sequence[float]) -> RawScore:
        parts = {RETRIEVAL: fitting, **({} if masked is None else {MASKED: masked})}
        formula = self._options.overall
        if facts:
            parts[FACTS] = max(facts)
            parts |= {f"fact_{number}": value for number, value in enumerate(facts, start=1)}
            formula = self._options.overall_with_facts or formula
        if masked is None:
            return RawScore(fitting, parts, is_comparable=False)
        return RawScore(formula.apply(parts), parts, is_comparable=formula is self._options.overall)

    def _pack(
        self, place: int, said: Sequence[list[int]], response: list[int], facts: Sequence[list[int]]
    ) -> TokenPack:
        """The rows, and as its tokens those of the row that the copies are made of."""
        pack, end = self.pack_row(place, said, response)
        start = pack.structure
        copies = masked_copies(pack.rows[0], start, end, self._mask)
        rows = [self.lay_out(fact, response) for fact in facts]  # of a long fact the end is kept
        plan = _Plan(
            places=tuple(copy[1] for copy in copies),
            targets=tuple(copy[2] for copy in copies),
            starts=(*(start,) * (len(copies) + 1), *(row.response_start for row in rows)),
        )
        own = (*(copy[0] for copy in copies), pack.rows[0], *(row.ids for row in rows))
        return replace(pack, rows=own, structure=plan)

    def _log_probabilities(self, batch: Sequence[TokenPack]) -> Iterator[float]:
        """Of the masked token of every copy in order, in runs of bounded size."""
        copies: list[tuple[TokenRow, int, int, int]] = []
        for pack in batch:
            plan = pack.structure
            copies += zip(pack.rows[: plan.copies], plan.places, plan.targets, plan.starts[: plan.copies], strict=True)
        for chunk in _chunks(copies):
            rows, places, targets, starts = zip(*chunk, strict=True)
            feeds = self.feed_rows(rows, starts, MASKED_INPUTS)
            feeds[f"{MASKED_INPUTS}place"] = np.array(places, dtype=np.int64)
            feeds[f"{MASKED_INPUTS}token"] = np.array(targets, dtype=np.int64)
            feeds |= self.feed_rows([self._empty_row()], [0], RETRIEVAL_INPUTS)
            yield from map(float, self._backend.run(feeds)[f"{MASKED_INPUTS}log_probability"])

    def _probabilities(self, batch: Sequence[TokenPack]) -> Iterator[float]:
        """Of every row that is no copy, in order."""
        rows: list[TokenRow] = []
        starts: list[int] = []
        for pack in batch:
            plan = pack.structure
            rows += pack.rows[plan.copies :]
            starts += plan.starts[plan.copies :]
        feeds = self.feed_rows(rows, starts, RETRIEVAL_INPUTS) | self.feed_rows([self._empty_row()], [0], MASKED_INPUTS)
        feeds[f"{MASKED_INPUTS}place"] = feeds[f"{MASKED_INPUTS}token"] = np.zeros(1, dtype=np.int64)
        yield from map(float, self._backend.run(feeds)[f"{RETRIEVAL_INPUTS}probability"])

    def _empty_row(self) -> TokenRow:
        """The least that the other model of the graph can be given."""
        return self._tokenizer.first_id, self._tokenizer.separator_id


def _chunks(copies: Sequence[tuple[TokenRow, int, int, int]]) -> Iterator[Sequence[tuple[TokenRow, int, int, int]]]:
    """Runs of copies in order, of at most so many tokens with padding, of one copy at least."""
    start = 0
    while start < len(copies):
        widest, end = 0, start
        while end < len(copies):
            widest = max(widest, len(copies[end][0]))
            if end > start and widest * (end + 1 - start) > TOKENS_AT_ONCE:
                break
            end += 1
        yield copies[start:end]
        start = end


def _facts_of(turn: TurnToScore) -> tuple[str, ...]:
    return turn.options if isinstance(turn.options, tuple) else ()


def _read_fact(fact: JsonValue, place: int) -> str:
    if not isinstance(fact, str) or not fact.strip():
        raise InvalidRequestError("must be a text that is not empty", field=f"{FACTS}.{place}")
    if len(fact) > MOST_FACT_CHARS:
        raise InvalidRequestError(
            f"{len(fact)} characters; at most {MOST_FACT_CHARS} are allowed", field=f"{FACTS}.{place}"
        )
    return fact
