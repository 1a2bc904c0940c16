"""FED: how likely is a user to answer with praise or with complaint? Mehri and Eskenazi 2020, on a language model.

A quality's value is the mean loss of its negative follow-ups minus the mean loss of its positive ones; an empty list
counts 0. A turn's value is the mean over the qualities asked for. All follow-ups of a turn, all turns of a dialogue and
all responses to one context are computed in one pass; turnscore_core.scorers.fed.batch draws it.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import JsonValue
from turnscore_models.bundle import Bundle
from turnscore_wire import TokenCount

from turnscore_core.inference.onnx_backend import Backend
from turnscore_core.scorers.fed import questions
from turnscore_core.scorers.fed.batch import (
    BranchedTrunk,
    BranchLosses,
    FedBatch,
    FedTurn,
    Floats,
    SharedTurns,
    share_turns,
)
from turnscore_core.scorers.fed.plans import FedPlan, FedPlans, FedReference
from turnscore_core.scorers.history import CHARS_PER_TOKEN, FEWEST_CHARS, history_of, keep_end
from turnscore_core.scorers.scorer import Fields, RawScore, Scorer, TokenPack, TurnToScore

# Trunk and branches computed at once, in windows of the model. Measured with one of 256 tokens, a dialogue of 12 turns
# on 2 CPUs: 4 windows cost 54 ms of CPU per turn and 265 MiB, 8 cost 59 and 336, 16 cost 58 and 446.
_WINDOWS_PER_PACK = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """A pack's structure: a conversation, and which of its branches gives each answer."""

    conversation: BranchedTrunk
    branches: tuple[int, ...]
    plan: FedPlan
    tree: int  # which of the plan's trees the branches end in


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUpLosses:
    """What one turn's pass found, and the qualities that it is rated on."""

    plan: FedPlan
    tree: int  # which of the plan's trees was computed
    found: BranchLosses
    context_tokens: int  # tokens of the context without its first

    def rate(self, loss: questions.Loss) -> list[float]:
        """The value of each quality of a plan of one tree; `whole_sequence` only where the pack was made for it."""
        return self.plan.rate(self._losses(loss).tolist())

    def score(self, reference: FedReference) -> RawScore:
        """The turn's score, or where the plan has several trees what `FedScorer.merge` makes it of."""
        loss = self.plan.question.loss
        if len(self.plan.trees) == 1:
            return reference.score(self.plan.question, self.rate(loss))
        first = self.plan.first_of(self.tree)
        return RawScore(0.0, {str(first + place): each for place, each in enumerate(self._losses(loss).tolist())})

    def _losses(self, loss: questions.Loss) -> Floats:
        tree = self.plan.trees[self.tree]
        if loss == "response_only":
            return tree.response_losses(self.found.tree)
        return tree.whole_losses(self.found.tree, self.found.context, self.context_tokens)


class FedScorer(Scorer):
    """Differences of losses in nats, higher is better; their percentiles say what they mean."""

    KIND: ClassVar[str] = "fed"
    shares_passes = True

    def __init__(self, bundle: Bundle, backend: Backend) -> None:
        """Raises RuntimeError where the manifest's options or the files they name are wrong."""
        manifest, self._options = bundle.manifest, bundle.read_options(questions.FedBundleOptions)
        file, eos_id = bundle.path_of(manifest.tokenizer), self._options.eos_id
        self._tokenizer = questions.DialogueTokenizer(file, eos_id, self._options.join)
        self._window = manifest.token_limit
        self._backend = backend
        self._questions = questions.FedQuestions(self._tokenizer, self._options, self._window)
        self._reference = FedReference(bundle.path_of(self._options.reference), self._options)
        max_tokens = _WINDOWS_PER_PACK * self._window
        self._plans = FedPlans(self._tokenizer, self._questions, max_tokens=max_tokens)
        self.option_limits = {
            "own_qualities": questions.MAX_OWN_QUALITIES,
            "own_follow_ups": questions.MAX_FOLLOW_UPS,
            "own_follow_up_chars": questions.MAX_FOLLOW_UP_CHARS,
            "own_follow_up_tokens": max_tokens,
            "one_follow_up_tokens": self._questions.longest_allowed,
        }

    def read_options(self, options: Mapping[str, JsonValue]) -> questions.FedQuestion:
        """`qualities`, `own_qualities` and `loss`; raises InvalidRequestError for anything else.

        Tokenizes nothing: `encode` refuses follow-ups of the caller's that have too many tokens.
        """
        return self._questions.read(options)

    def is_planned(self, turn: TurnToScore) -> bool:
        """Whether the question was asked lately."""
        return self._plans.peek(self._question_of(turn)) is not None

    def trim(self, turn: TurnToScore) -> TurnToScore:
        """The conversation's end: as much as a window holds, every turn of which takes two tokens at least."""
        chars = CHARS_PER_TOKEN * self._window
        response, response_cut = keep_end(turn.response, chars)
        turns, chars = self._window // 2, chars - len(response)
        context, context_cut = history_of(turn.context).latest(turns=turns, chars=chars)
        return turn.trimmed(context, response, is_cut=response_cut or context_cut)

    def max_turn_tokens(self, token_limit: int) -> int:
        """The conversation, and as many follow-ups as a caller may ask for."""
        return token_limit + max(self._questions.default.fed_tokens, self.option_limits["own_follow_up_tokens"])

    def estimate_tokens(self, turn: TurnToScore) -> int:
        """Tokens of the conversation, from its characters, and of the follow-ups."""
        conversation = len(turn.response) // FEWEST_CHARS + 2
        for each in reversed(turn.context):
            if conversation >= self._window:
                break
            conversation += len(each.text) // FEWEST_CHARS + 2
        return min(self._window, conversation) + self._question_of(turn).fed_tokens

    def inputs_of(self, turn: TurnToScore) -> Fields:
        """The texts that the model reads, of both speakers; the question is what the fragments are about."""
        texts = [each.text for each in turn.context if each.text.strip()]
        return tuple(map(self._tokenizer.spoken, texts)), self._tokenizer.spoken(turn.response)

    def fragments_of(self, turn: TurnToScore) -> tuple[bytes, ...]:
        """One a quality: its follow-ups, the loss, and how much of the turn fits the window.

        A single one for a question of the caller's: only its tokens say how much fits.
        """
        return self._question_of(turn).fragments

    def narrow(self, turn: TurnToScore, places: Sequence[int]) -> tuple[TurnToScore, Sequence[int]]:
        """The turn asking for these qualities alone, where that leaves as much room for the context."""
        question = self._question_of(turn)
        if question.room != self._questions.default.room:
            return turn, range(len(question.fragments))
        qualities = dict(question.qualities[place] for place in places)
        return dataclasses.replace(turn, options=self._questions.ask(qualities, question.loss)), places

    def split(self, turn: TurnToScore, whole: RawScore) -> list[RawScore]:
        """A quality's value each, of the tokens those of the turn; the whole where that is one."""
        question = self._question_of(turn)
        if question.is_callers:
            return [whole]
        tokens = TokenCount(used=whole.tokens.used - question.fed_tokens, dropped=whole.tokens.dropped)
        return [RawScore(whole.details[name], tokens=tokens) for name, _ in question.qualities]

    def join(self, turn: TurnToScore, fragments: Sequence[RawScore]) -> RawScore:
        """Value, percentiles and token counts as `score` and `encode` make them."""
        question = self._question_of(turn)
        if question.is_callers:
            [whole] = fragments
            return whole
        tokens = TokenCount(used=fragments[0].tokens.used + question.fed_tokens, dropped=fragments[0].tokens.dropped)
        values = [each.value for each in fragments]
        return dataclasses.replace(self._reference.score(question, values), tokens=tokens)

    def encode(self, turns: Sequence[TurnToScore]) -> list[TokenPack]:
        """Packs of turns that share a context and ask the same; the oldest tokens beyond the window are cut.

        Raises InvalidRequestError, naming `own_qualities`, where a caller's follow-ups have too many tokens.
        """
        by_plan: dict[questions.FedQuestion, list[int]] = {}
        for place, turn in enumerate(turns):
            by_plan.setdefault(self._question_of(turn), []).append(place)
        tokens = self._tokenize(turns)
        packs: list[TokenPack] = []
        for question, places in by_plan.items():
            plan = self._plans.of(question)
            cut = [self._cut(tokens[place], plan) for place in places]
            counts = [TokenCount(used=len(turn.tokens) + plan.fed_tokens, dropped=dropped) for turn, dropped in cut]
            for number, tree in enumerate(plan.trees):
                shared = share_turns(
                    [turn for turn, _ in cut],
                    tree,
                    with_context=plan.with_context,
                    max_tokens=_WINDOWS_PER_PACK * self._window,
                )
                packs += [_pack(each, places, counts, plan, number) for each in shared]
        return packs

    def score(self, batch: Sequence[TokenPack]) -> list[RawScore]:
        """One score an answer: the mean over the qualities, and each quality's value and percentile in `details`."""
        return [each.score(self._reference) for each in self.compute_losses(batch)]

    def merge(self, pack: TokenPack, pieces: Sequence[RawScore]) -> RawScore:
        """The score of a turn whose follow-ups were dealt out to several packs."""
        plan = pack.structure.plan
        losses = {int(place): loss for piece in pieces for place, loss in piece.details.items()}
        return self._reference.score(plan.question, plan.rate([losses[place] for place in range(len(losses))]))

    def compute_losses(self, batch: Sequence[TokenPack]) -> list[FollowUpLosses]:
        """The losses behind the scores of a batch, for each pack in order, one for each of its answers."""
        layouts = [pack.structure for pack in batch]
        fed = FedBatch([each.conversation for each in layouts], self._tokenizer.eos_id, self._round_trunk)
        found = iter(fed.read_losses(self._backend.run(fed.feeds())["loss"]))
        losses = []
        for each in layouts:
            branches = [
                FollowUpLosses(
                    plan=each.plan, tree=each.tree, found=next(found), context_tokens=branch.context_tokens - 1
                )
                for branch in each.conversation.branches
            ]
            losses += [branches[number] for number in each.branches]
        return losses

    def _round_trunk(self, longest: int) -> int:
        """As the runtime wants it, but never beyond the positions that the model has."""
        return max(longest, min(self._window, self._backend.round_width(longest)))

    def _question_of(self, turn: TurnToScore) -> questions.FedQuestion:
        return turn.options if isinstance(turn.options, questions.FedQuestion) else self._questions.default

    def _tokenize(self, turns: Sequence[TurnToScore]) -> list[list[list[int]]]:
        """Of each turn the tokens of its context's turns that are not empty, and of its response; each text once."""
        texts = [[each.text for each in turn.context if each.text.strip()] + [turn.response] for turn in turns]
        distinct = list(dict.fromkeys(text for each in texts for text in each))
        tokens = dict(zip(distinct, self._tokenizer.encode_turns(distinct), strict=True))
        return [[tokens[text] for text in each] for each in texts]

    def _cut(self, turns: Sequence[Sequence[int]], plan: FedPlan) -> tuple[FedTurn, int]:
        """The turn, so cut that the longest follow-up fits the window as well, and how many tokens were dropped."""
        room, sizes = plan.room, [len(turn) + 1 for turn in turns]
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


def _pack(
    shared: SharedTurns, places: Sequence[int], counts: Sequence[TokenCount], plan: FedPlan, tree: int
) -> TokenPack:
    conversation = shared.conversation
    answers = [(branch, turn) for branch, turns in enumerate(shared.places) for turn in turns]
    return TokenPack(
        rows=(conversation.trunk, *(branch.ids for branch in conversation.branches)),
        answers=tuple(places[turn] for _, turn in answers),
        tokens=tuple(counts[turn] for _, turn in answers),
        structure=_Layout(
            conversation=conversation, branches=tuple(branch for branch, _ in answers), plan=plan, tree=tree
        ),
        pieces=len(plan.trees),
    )
