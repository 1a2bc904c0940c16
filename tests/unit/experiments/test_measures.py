"""What a baseline is asked of a judged set."""

from pathlib import Path

from paper_systems.measures import read_eval_sets
from support.exporter_data import write_rows


def test_a_response_among_its_own_references_is_measured_without_it(tmp_path: Path) -> None:
    """The person who answered best wrote one of the references: the copy would give that response the full score."""
    row = {"system": "human", "context_id": "1", "context": ["hi"], "rating": 5, "response": "Hello there!"}
    rows: list[object] = [
        {**row, "references": ["hello there", "good day"]},
        {**row, "references": ["Hello, there!"], "system": "other"},
    ]
    write_rows(tmp_path / "multiref" / "ratings.jsonl.gz", rows)
    [found] = read_eval_sets(tmp_path)
    assert [each.references for each in found.asked] == [("good day",)], "a turn without any other is not asked"
