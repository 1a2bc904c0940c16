"""FED's questions: what a caller asks, as far as it can be said without tokenizing. Refuses what is wrong, by name.

The follow-ups that bundle and deployment know are tokenized when the scorer is loaded. A question that has others is
the caller's: its tokens are counted, and refused where there are too many, in the tokenizer's thread (plans.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, ValidationError, model_validator
from turnscore_models.manifest import FileName
from turnscore_wire import describe_refusal

from turnscore_core.errors import InvalidRequestError
from turnscore_core.inference.tokenizer import read_tokenizer
from turnscore_core.scorers.scorer import fingerprint

# How a turn meets the separators around it: `stripped`, without spaces, as DialoGPT was trained; `spaced`, with one on
# either side, as current tokenizers read the text that published FED code puts together.
Join = Literal["stripped", "spaced"]


class DialogueTokenizer:
    """A byte-level BPE whose end-of-text token has the id `eos_id`. May be used from any thread."""

    def __init__(self, file: Path, eos_id: int, join: Join) -> None:
        """Loads `tokenizer.json`. Raises RuntimeError where it is no tokenizer or has no such token."""
        self._tokenizer = read_tokenizer(file)
        if self._tokenizer.id_to_token(eos_id) is None:
            raise RuntimeError(f"{file.name} has no token {eos_id}, the manifest's end-of-text token")
        self._tokenizer.encode_special_tokens = True
        self._join = join
        self.eos_id = eos_id

    def encode_turns(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text as a turn that another follows, without separators."""
        return self._encode([self.spoken(text) for text in texts])

    def spoken(self, text: str) -> str:
        """A turn's text as it stands between the separators."""
        return text.strip() if self._join == "stripped" else f" {text} "

    def encode_follow_ups(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text as the last turn: nothing stands after it."""
        return self._encode([text.strip() if self._join == "stripped" else f" {text}" for text in texts])

    def join(self, turns: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Separator, turn, separator, turn, ..., separator: what a follow-up is predicted from."""
        joined = [self.eos_id]
        for turn in turns:
            joined += [*turn, self.eos_id]
        return tuple(joined)

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


# `response_only`: the mean loss of the follow-up's tokens, L(r | c) as the papers define it. `whole_sequence`: of every
# token but the first of context and follow-up, as the authors' released code computes it.
Loss = Literal["response_only", "whole_sequence"]

QualityName = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[a-z][a-z0-9 _-]*$")]
FollowUp = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
MAX_OWN_QUALITIES = 16  # chosen: as many as FED has, about
MAX_FOLLOW_UPS = 256  # follow-ups of a caller's own qualities together: four times as many as FED's own
MAX_FOLLOW_UP_CHARS = 4096  # of those: FED's own eighteen have 1,758


class Quality(BaseModel):
    """What users say after a turn that has the quality, and after one that lacks it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    positive: Annotated[tuple[FollowUp, ...], Field(max_length=16)] = ()
    negative: Annotated[tuple[FollowUp, ...], Field(max_length=16)] = ()

    @model_validator(mode="after")
    def _has_follow_ups(self) -> "Quality":
        if not self.positive and not self.negative:
            raise ValueError("a quality needs a positive or a negative follow-up")
        return self


Qualities = dict[QualityName, Quality]


class FedBundleOptions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    qualities: Qualities = Field(description="All that the bundle knows, in the order of the reference values.")
    default_qualities: tuple[str, ...] = Field(min_length=1, description="Asked where a request names none.")
    loss: Loss = Field(default="response_only", description="Taken where a request names none.")
    join: Join = "stripped"
    eos_id: Annotated[int, Field(ge=0)] = Field(description="The end-of-text token, which stands between turns.")
    reference: FileName = Field(description="File with the reference turns' values, [turns, qualities] for each loss.")
    own_qualities: Annotated[Qualities, Field(max_length=MAX_OWN_QUALITIES)] = Field(
        default_factory=dict, description="Qualities that a deployment adds; they have no percentile."
    )

    @model_validator(mode="after")
    def _defaults_are_known(self) -> "FedBundleOptions":
        unknown = set(self.default_qualities) - self.qualities.keys()
        if unknown:
            raise ValueError(f"default_qualities names {', '.join(sorted(unknown))}, which qualities lacks")
        return self


class _RequestOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    qualities: Annotated[list[str], Field(min_length=1, max_length=64)] | None = None
    own_qualities: Annotated[Qualities, Field(max_length=MAX_OWN_QUALITIES)] = Field(default_factory=dict)
    loss: Loss | None = None


def read_request(options: Mapping[str, JsonValue], bundle: FedBundleOptions) -> tuple[dict[str, Quality], Loss]:
    """The qualities that a request's options ask, by name, and the loss.

    `qualities` names some; without it the caller's own are asked, or else the bundle's default. A quality in
    `own_qualities` stands before the bundle's of that name. Raises InvalidRequestError with the option's name.
    """
    for name in options:
        if name not in _RequestOptions.model_fields:
            raise InvalidRequestError("there is no such option", field=name)
    _bound_follow_ups(options.get("own_qualities"))
    try:
        asked = _RequestOptions.model_validate(dict(options))
    except ValidationError as error:
        field, message = describe_refusal(error)
        raise InvalidRequestError(message, field=field) from None
    known = {**bundle.qualities, **bundle.own_qualities, **asked.own_qualities}
    names = asked.qualities or list(asked.own_qualities) or bundle.default_qualities
    for place, name in enumerate(names):
        if name not in known:
            raise InvalidRequestError(f"no such quality; known: {', '.join(known)}", field=f"qualities.{place}")
    return {name: known[name] for name in names}, asked.loss or bundle.loss


def _bound_follow_ups(own: JsonValue) -> None:
    """Refuses what is too much before it is looked at one by one; what is of another form is refused later."""
    if not isinstance(own, Mapping):
        return
    if len(own) > MAX_OWN_QUALITIES:
        raise InvalidRequestError(
            f"{len(own)} qualities; at most {MAX_OWN_QUALITIES} are allowed", field="own_qualities"
        )
    sizes = [len(each) if isinstance(each, str) else 0 for quality in own.values() for each in _values_of(quality)]
    if len(sizes) > MAX_FOLLOW_UPS:
        raise InvalidRequestError(
            f"{len(sizes)} follow-ups together; at most {MAX_FOLLOW_UPS} are allowed", field="own_qualities"
        )
    if sum(sizes) > MAX_FOLLOW_UP_CHARS:
        raise InvalidRequestError(
            f"the follow-ups have {sum(sizes)} characters together; at most {MAX_FOLLOW_UP_CHARS} are allowed",
            field="own_qualities",
        )


def _values_of(quality: JsonValue) -> Iterator[JsonValue]:
    """Everything that stands where follow-ups are expected, under whatever name."""
    for side in quality.values() if isinstance(quality, Mapping) else ():
        yield from side if isinstance(side, Sequence) and not isinstance(side, str) else [side]


_BYTES_PER_TOKEN = 2  # of a caller's follow-up, for admission: English has four to five, other scripts two or less


@dataclass(frozen=True, slots=True, kw_only=True)
class FedQuestion:
    """What one turn is scored on, in the order asked."""

    # Equal questions have equal keys, and only the keys are compared. Holds no text but the qualities' names.
    key: tuple[object, ...]
    qualities: tuple[tuple[str, Quality], ...] = field(compare=False)
    loss: Loss = field(compare=False)
    # A fingerprint for each fragment of its score, of all but the turn that it depends on: one a quality, whose name it
    # leaves out, or a single one where the question is the caller's.
    fragments: tuple[bytes, ...] = field(compare=False)
    # Tokens of a turn that fit the window with its longest follow-up. None where it is the caller's.
    room: int | None = field(compare=False)
    # Of the follow-ups: those that the model is fed, or an estimate where the question is the caller's.
    fed_tokens: int = field(compare=False)

    @property
    def is_callers(self) -> bool:
        """Whether it has a follow-up that neither bundle nor deployment knows."""
        return self.room is None

    @property
    def texts(self) -> list[str]:
        return list(dict.fromkeys(text for _, quality in self.qualities for text in _texts_of(quality)))


class FedQuestions:
    """Makes questions for one bundle."""

    def __init__(self, tokenizer: DialogueTokenizer, options: FedBundleOptions, window: int) -> None:
        """Tokenizes what is known. Raises RuntimeError where a follow-up leaves no room for a context."""
        self._options = options
        self._window = window
        self.longest_allowed = window // 4  # a follow-up may take a quarter of the window, the context has the rest
        self._known = {**options.qualities, **options.own_qualities}
        texts = list(dict.fromkeys(text for each in self._known.values() for text in _texts_of(each)))
        # Of each follow-up that is known.
        self.tokens: Mapping[str, Sequence[int]] = dict(zip(texts, tokenizer.encode_follow_ups(texts), strict=True))
        self._prefixes = _number_prefixes(self.tokens)
        # Tokens of the bundle's longest follow-up, which decides how much context fits whatever is asked of it.
        self.longest = max(len(self.tokens[text]) for each in options.qualities.values() for text in _texts_of(each))
        longest = max(map(len, self.tokens.values()))
        if longest > self.longest_allowed:
            raise RuntimeError(f"a follow-up of {longest} tokens leaves no room for a context")
        self._fragments = {
            (name, loss): _fragment(quality, loss, self.context_room(self.longest))
            for name, quality in self._known.items()
            for loss in ("response_only", "whole_sequence")
        }
        self.default = self.ask(*read_request({}, options))

    def read(self, options: Mapping[str, JsonValue]) -> FedQuestion:
        """The question that a request's options ask. Raises InvalidRequestError with the option's name."""
        return self.ask(*read_request(options, self._options)) if options else self.default

    def ask(self, qualities: Mapping[str, Quality], loss: Loss) -> FedQuestion:
        asked = tuple(qualities.items())
        texts = [text for quality in qualities.values() for text in _texts_of(quality)]
        if any(text not in self.tokens for text in texts):
            return self._ask_callers(asked, loss, texts)
        room = self.context_room(max(len(self.tokens[text]) for text in texts))
        fragments = tuple(self._fragment_of(name, quality, loss, room) for name, quality in asked)
        fed = 0
        for text in texts:
            fed |= self._prefixes[text]
        return FedQuestion(
            key=(loss, *qualities, *fragments),
            qualities=asked,
            loss=loss,
            fragments=fragments,
            room=room,
            fed_tokens=fed.bit_count(),
        )

    def context_room(self, longest: int) -> int:
        """Tokens of a turn that fit the window when a follow-up of `longest` tokens stands after them."""
        return self._window - max(self.longest, longest)

    def _ask_callers(self, asked: Sequence[tuple[str, Quality]], loss: Loss, texts: Sequence[str]) -> FedQuestion:
        described = ((name, quality.positive, quality.negative) for name, quality in asked)
        whole = fingerprint((loss, *(each for three in described for each in three)))
        estimate = sum(len(text.encode()) // _BYTES_PER_TOKEN + 1 for text in set(texts))
        return FedQuestion(
            key=(loss, whole), qualities=tuple(asked), loss=loss, fragments=(whole,), room=None, fed_tokens=estimate
        )

    def _fragment_of(self, name: str, quality: Quality, loss: Loss, room: int) -> bytes:
        if self._known.get(name) is quality and room == self.context_room(self.longest):
            return self._fragments[name, loss]
        return _fragment(quality, loss, room)


def _texts_of(quality: Quality) -> tuple[str, ...]:
    return (*quality.positive, *quality.negative)


def _fragment(quality: Quality, loss: Loss, room: int) -> bytes:
    """`room` too: a longer follow-up of another quality leaves less of the context to read."""
    return fingerprint((loss, quality.positive, quality.negative, room))


def _number_prefixes(tokens: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Of each text the beginnings that something follows, a bit each: what a tree of several texts feeds, in a tree
    that need not be built."""
    numbers: dict[tuple[int, ...], int] = {}
    return {
        text: sum(1 << numbers.setdefault(tuple(ids[:end]), len(numbers)) for end in range(1, len(ids)))
        for text, ids in tokens.items()
    }
