"""FED: how likely is a user to answer with praise or with complaint? Mehri and Eskenazi 2020, on a language model.

A quality's value is the mean loss of its negative follow-ups minus the mean loss of its positive ones; an empty list
counts 0. A turn's value is the mean over the qualities asked for. All follow-ups of a turn, all turns of a dialogue and
all responses to one context are computed in one pass; turnscore_service.inference.fed_packing draws it.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

from pydantic import JsonValue, ValidationError
from turnscore_models import Bundle
from turnscore_wire import TokenCount

from turnscore_service.errors import InvalidRequestError
from turnscore_service.inference.dialogue_tokens import DialogueTokenizer
from turnscore_service.inference.fed_packing import BranchLosses, Conversation, FedBatch
from turnscore_service.inference.fed_sharing import FedTurn, SharedTurns, share_turns
from turnscore_service.inference.fed_tree import FollowUpTree
from turnscore_service.inference.onnx_backend import Backend
from turnscore_service.scorers.fed_options import FedBundleOptions, FedQuestion, Loss, build_question, read_question
from turnscore_service.scorers.fed_plans import FedPlan, FedPlans
from turnscore_service.scorers.fed_reference import FedReference
from turnscore_service.scorers.fields import Fields
from turnscore_service.scorers.parts import ScorePart
from turnscore_service.scorers.scorer import RawScore, TokenPack, TurnToScore

_CHARS_A_TOKEN = 2
"""English text has four to five characters a token; half of that is on the safe side for other scripts. Chosen."""
_WINDOWS_A_PACK = 4
"""Trunk and branches computed at once, in windows of the model. Measured with one of 256 tokens, a dialogue of 12 turns
on 2 CPUs: 4 windows cost 54 ms of CPU a turn and 265 MiB, 8 cost 59 and 336, 16 cost 58 and 446."""
_FOLLOW_UP_SHARE = 4
"""A follow-up may take a quarter of the window, the context has the rest. Chosen."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """A pack's structure: a conversation, and which of its branches gives each answer."""

    conversation: Conversation
    branches: tuple[int, ...]
    plan: FedPlan


@dataclass(frozen=True, slots=True)
class FollowUpLosses:
    """What one turn's pass found, and the qualities that it is rated on."""

    plan: FedPlan
    found: BranchLosses
    context_tokens: int
    """Tokens of the context without its first."""

    def rate(self, loss: Loss) -> list[float]:
        """The value of each quality; `whole_sequence` only where the pack was made for it."""
        tree = self.plan.tree
        if loss == "response_only":
            losses = tree.response_losses(self.found.tree)
        else:
            losses = tree.whole_losses(self.found.tree, self.found.context, self.context_tokens)
        return self.plan.rate(losses)


class FedScorer:
    """Differences of losses in nats, higher is better; what they mean is told by their percentiles."""

    KIND: ClassVar[str] = "fed"

    def __init__(self, bundle: Bundle, backend: Backend) -> None:
        """Raises RuntimeError where the manifest's options or the files they name are wrong."""
        manifest = bundle.manifest
        try:
            self._options = FedBundleOptions.model_validate(manifest.options)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise RuntimeError(f"the manifest's options are wrong: {where}: {first['msg']}") from None
        file, eos_id = bundle.path_of(manifest.tokenizer), self._options.eos_id
        self._tokenizer = DialogueTokenizer(file, eos_id, self._options.join)
        self._window = manifest.token_limit
        self._backend = backend
        known = self._options.qualities.values()
        texts = [text for each in known for text in (*each.positive, *each.negative)]
        self._longest_follow_up = max(map(len, self._tokenizer.encode_follow_ups(texts)))
        if self._longest_follow_up > self._window // _FOLLOW_UP_SHARE:
            raise RuntimeError(f"a follow-up of {self._longest_follow_up} tokens leaves no room for a context")
        self._default = read_question({}, self._options)
        reference = FedReference(bundle.path_of(self._options.reference), self._options)
        self._plans = FedPlans(self._tokenizer, reference, self._room_beside)

    def read_options(self, options: Mapping[str, JsonValue]) -> FedQuestion:
        """`qualities`, `own_qualities` and `loss`; raises InvalidRequestError for anything else."""
        question = read_question(options, self._options)
        longest, limit = self._plans.of(question).tree.longest, self._window // _FOLLOW_UP_SHARE
        if longest > limit:
            raise InvalidRequestError(
                f"a follow-up has {longest} tokens; at most {limit} are taken", field="own_qualities"
            )
        return question

    def estimate_tokens(self, turn: TurnToScore) -> int:
        """Tokens of the conversation, from its characters, and of the follow-ups."""
        conversation = len(turn.response) // _CHARS_A_TOKEN + 2
        for each in reversed(turn.context):
            if conversation >= self._window:
                break
            conversation += len(each.text) // _CHARS_A_TOKEN + 2
        return min(self._window, conversation) + len(self._plan_for(turn).tree.ids)

    def inputs_of(self, turn: TurnToScore) -> Fields:
        """The texts that the model reads, whoever said them; the question is what the parts are about."""
        texts = [each.text for each in turn.context if each.text.strip()]
        return tuple(map(self._tokenizer.spoken, texts)), self._tokenizer.spoken(turn.response)

    def parts_of(self, turn: TurnToScore) -> tuple[bytes, ...]:
        """A part a quality: its follow-ups, the loss, and how much of the turn fits the window."""
        return self._plan_for(turn).parts

    def narrow(self, turn: TurnToScore, places: Sequence[int]) -> tuple[TurnToScore, Sequence[int]]:
        """The turn asking for these qualities alone, where that leaves as much room for the context."""
        plan = self._plan_for(turn)
        if plan.tree.longest > self._longest_follow_up:
            return turn, range(len(plan.parts))
        qualities = dict(plan.question.qualities[place] for place in places)
        return dataclasses.replace(turn, options=build_question(qualities, plan.question.loss)), places

    def split(self, turn: TurnToScore, whole: ScorePart) -> list[ScorePart]:
        """A quality's value each; of the tokens those of the turn."""
        plan = self._plan_for(turn)
        tokens = TokenCount(used=whole.tokens.used - len(plan.tree.ids), dropped=whole.tokens.dropped)
        return [ScorePart(RawScore(whole.raw.details[name]), tokens) for name, _ in plan.question.qualities]

    def join(self, turn: TurnToScore, parts: Sequence[ScorePart]) -> ScorePart:
        """Value, percentiles and token counts as `score` and `encode` make them."""
        plan = self._plan_for(turn)
        tokens = TokenCount(used=parts[0].tokens.used + len(plan.tree.ids), dropped=parts[0].tokens.dropped)
        return ScorePart(plan.score([part.raw.value for part in parts]), tokens)

    def encode(self, turns: Sequence[TurnToScore]) -> list[TokenPack]:
        """Packs of turns that share a context and ask the same; the oldest tokens beyond the window are cut."""
        by_plan: dict[FedQuestion, list[int]] = {}
        for place, turn in enumerate(turns):
            by_plan.setdefault(self._question_of(turn), []).append(place)
        tokens = self._tokenize(turns)
        packs: list[TokenPack] = []
        for question, places in by_plan.items():
            plan = self._plans.of(question)
            cut = [self._cut(tokens[place], plan) for place in places]
            shared = share_turns(
                [turn for turn, _ in cut],
                plan.tree,
                with_context=plan.with_context,
                max_tokens=_WINDOWS_A_PACK * self._window,
            )
            counts = [TokenCount(used=len(turn.tokens) + len(plan.tree.ids), dropped=dropped) for turn, dropped in cut]
            packs += [_pack(each, places, counts, plan) for each in shared]
        return packs

    def score(self, batch: Sequence[TokenPack]) -> list[RawScore]:
        """One score an answer: the mean over the qualities, and each quality's value and percentile in `details`."""
        return [each.plan.score(each.rate(each.plan.question.loss)) for each in self.compute_losses(batch)]

    def compute_losses(self, batch: Sequence[TokenPack]) -> list[FollowUpLosses]:
        """The losses behind the scores of a batch, for each pack in order, one for each of its answers."""
        layouts = [cast("_Layout", pack.structure) for pack in batch]
        fed = FedBatch([each.conversation for each in layouts], self._tokenizer.eos_id, self._round_trunk)
        found = iter(fed.read_losses(self._backend.run(fed.feeds())["loss"]))
        losses = []
        for each in layouts:
            branches = [
                FollowUpLosses(each.plan, next(found), branch.context_tokens - 1)
                for branch in each.conversation.branches
            ]
            losses += [branches[number] for number in each.branches]
        return losses

    def _round_trunk(self, longest: int) -> int:
        """As the runtime wants it, but never beyond the positions that the model has."""
        return max(longest, min(self._window, self._backend.round_width(longest)))

    def counts_in_dialogue(self, turn: TurnToScore) -> bool:
        """Every system turn counts, also one that opens the dialogue."""
        return True

    def _room_beside(self, tree: FollowUpTree) -> int:
        """Tokens of a turn that fit the window when the longest follow-up stands after them."""
        return self._window - max(self._longest_follow_up, tree.longest)

    def _question_of(self, turn: TurnToScore) -> FedQuestion:
        return turn.options if isinstance(turn.options, FedQuestion) else self._default

    def _plan_for(self, turn: TurnToScore) -> FedPlan:
        return self._plans.of(self._question_of(turn))

    def _tokenize(self, turns: Sequence[TurnToScore]) -> list[list[list[int]]]:
        """Of each turn the tokens of its context's turns that are not empty, and of its response; each text once."""
        texts = [[each.text for each in turn.context if each.text.strip()] + [turn.response] for turn in turns]
        distinct = list(dict.fromkeys(text for each in texts for text in each))
        tokens = dict(zip(distinct, self._tokenizer.encode_turns(distinct), strict=True))
        return [[tokens[text] for text in each] for each in texts]

    def _cut(self, turns: Sequence[Sequence[int]], plan: FedPlan) -> tuple[FedTurn, int]:
        """The turn, so cut that the longest follow-up fits the window as well, and how many tokens were dropped."""
        room = self._room_beside(plan.tree)
        sizes = [len(turn) + 1 for turn in turns]
        oldest, size = len(turns), 0
        while oldest > 0 and size < room:
            oldest -= 1
            size += sizes[oldest]
        joined = self._tokenizer.join(turns[oldest:])
        dropped = 1 + sum(sizes) - room
        if dropped <= 0:
            return FedTurn(joined, len(joined) - len(turns[-1]) - 1), 0
        kept = joined[len(joined) - room :]
        if kept[0] != self._tokenizer.eos_id:
            kept = (self._tokenizer.eos_id, *kept[1:])
        return FedTurn(kept, max(1, len(kept) - len(turns[-1]) - 1)), dropped


def _pack(shared: SharedTurns, places: Sequence[int], counts: Sequence[TokenCount], plan: FedPlan) -> TokenPack:
    conversation = shared.conversation
    answers = [(branch, turn) for branch, turns in enumerate(shared.places) for turn in turns]
    return TokenPack(
        rows=(conversation.trunk, *(branch.ids for branch in conversation.branches)),
        answers=tuple(places[turn] for _, turn in answers),
        tokens=tuple(counts[turn] for _, turn in answers),
        structure=_Layout(conversation, tuple(branch for branch, _ in answers), plan),
    )
