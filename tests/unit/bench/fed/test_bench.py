from dataclasses import replace
from pathlib import Path

import pytest
from turnscore_bench.fed.bench import share
from turnscore_bench.fed.dialogues import DialogueTiming, Setting, lay_out
from turnscore_bench.fed.report import BenchResult, write_report
from turnscore_bench.fed.ways import Timing, time_alternating
from turnscore_core.scorers.fed.batch import FedTurn, FollowUpTree, build_tree


def test_ways_take_turns_and_the_first_round_warms_up() -> None:
    order: list[str] = []
    ways = {name: (7, lambda name=name: order.append(name)) for name in ("a", "b")}  # type: ignore[misc]
    timings = time_alternating(ways, rounds=2)
    assert order == ["a", "b"] * 3
    assert [(each.name, each.tokens) for each in timings] == [("a", 7), ("b", 7)]


def test_a_dialogue_in_one_row_computes_its_text_once() -> None:
    tree = build_tree([[1, 2], [1, 3, 4]])
    dialogue = (0, 5, 0, 6, 0, 7, 0, 8, 0)
    turns = [FedTurn(dialogue[:end], 1) for end in (5, 9)]
    assert share(turns, tree, with_context=False).fed_tokens == len(dialogue) + 2 * len(tree.ids)


class TokensOnly:
    """A bench without a model: contexts of separators, one tree a number of qualities."""

    def draw_context(self, tokens: int, turn_tokens: int) -> list[int]:
        return [0 if place % turn_tokens == 0 else 9 for place in range(tokens)]

    def tree(self, count: int) -> FollowUpTree:
        return build_tree([[number, 1] for number in range(count)])


@pytest.mark.parametrize("at_end", [None, 5])
def test_row_and_turn_by_turn_hold_the_same_turns(at_end: int | None) -> None:
    setting = Setting(qualities=3, turns=6, turn_tokens=4, with_context=True, qualities_at_end=at_end)
    row, turn_by_turn = lay_out(TokensOnly(), setting)  # type: ignore[arg-type]
    assert len(row.trunk) == 6 * 5 + 1
    assert [branch.start for branch in row.branches] == [11, 21, 31]
    assert [each.trunk for each in turn_by_turn] == [row.trunk[: branch.start] for branch in row.branches]
    for each, branch in zip(turn_by_turn, row.branches, strict=True):
        assert [len(alone.ids) for alone in each.branches] == [len(branch.ids)]
        assert each.with_context
    assert [len(branch.ids) for branch in row.branches] == [3, 3, at_end or 3]


def test_the_page_holds_every_measurement(tmp_path: Path) -> None:
    timings = [Timing(name="25", seconds=0.2, tokens=300), Timing(name="50", seconds=0.1, tokens=330)]
    setting, measured = Setting(qualities=18, turns=20), Timing(name="row", seconds=1.0, tokens=3000)
    slow = Timing(name="turn by turn", seconds=2.5, tokens=4500)
    dialogue = DialogueTiming(setting=setting, row=measured, turn_by_turn=slow, work_ratio=2.7)
    other_setting = Setting(qualities=8, turns=20, turn_tokens=9, with_context=True, qualities_at_end=18, graph="int8")
    other = replace(dialogue, setting=other_setting)
    write_report(
        BenchResult(ways=timings, contexts=timings, qualities=timings, dialogues=[dialogue], other_dialogues=[other]),
        tmp_path,
        "Measured nowhere.",
    )
    page = (tmp_path / "fed.md").read_text()
    assert "| 50 | 330 | 100 | 2.0 |" in page
    assert "| 18 | 20 | 3,000 | 4,500 | 2.7 | 1,000 | 2,500 | 2.5 |" in page
    named = "8 qualities, 18 of the last turn, 9 tokens per turn, whole-sequence loss, int8"
    assert f"| {named} | 3,000 | 4,500 | 2.7 | 1,000 | 2,500 | 2.5 |" in page
    assert (tmp_path / "fed.svg").read_text().startswith("<?xml")
