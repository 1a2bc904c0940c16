from pathlib import Path

from turnscore_exporters.fed_bench import BenchResult, DialogueTiming, Timing, share, time_alternating
from turnscore_exporters.fed_bench_report import write_report
from turnscore_service.inference.fed_sharing import FedTurn
from turnscore_service.inference.fed_tree import build_tree


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


def test_the_page_holds_every_measurement(tmp_path: Path) -> None:
    timings = [Timing("25", 0.2, 300), Timing("50", 0.1, 330)]
    dialogue = DialogueTiming(18, 20, Timing("row", 1.0, 3000), Timing("one by one", 2.5, 4500))
    write_report(BenchResult(timings, timings, timings, [dialogue]), tmp_path, "Measured nowhere.")
    page = (tmp_path / "fed.md").read_text()
    assert "| 50 | 330 | 100 | 2.0 |" in page
    assert "| 18 | 20 | 3,000 | 4,500 | 1,000 | 2,500 | 2.5 |" in page
    assert (tmp_path / "fed.svg").read_text().startswith("<?xml")
