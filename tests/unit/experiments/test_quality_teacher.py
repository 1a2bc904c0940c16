"""experiments/quality_teacher.py: marks are written and read as the teacher gave them, or refused by their field."""

import json
from pathlib import Path

import pytest
import quality_teacher
import torch
from quality_teacher import Teacher
from turnscore_assessment.data.dialogues import MARKS
from turnscore_assessment.errors import BadFileError
from turnscore_exporters.quality.job import read_marked_turns

CONTEXT = (("system", "a b c"), ("user", "d e f g"))


def test_marks_are_read_as_they_were_given(tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    teacher = Teacher(str(tiny_bert)).eval()
    asked = [(CONTEXT, "a good b"), (CONTEXT, "c d"), ((), "e f g")]
    monkeypatch.setattr(quality_teacher, "draw_turns", lambda *_: asked)
    monkeypatch.setattr(quality_teacher, "load_teacher", lambda _: teacher)
    quality_teacher.mark([tmp_path], tmp_path, tmp_path / "marks.jsonl", people_share=0.0)
    turns = list(read_marked_turns(tmp_path / "marks.jsonl"))
    assert [(turn.context, turn.response) for turn in turns] == [(tuple(context), said) for context, said in asked]
    given = float(teacher.mark(asked)[1, MARKS.index("overall")].sigmoid())
    assert turns[1].labels["overall"] == pytest.approx(given, abs=1e-3)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"marks": {"overall": 4.5}}, "marks.overall"),
        ({"marks": {"charming": 0.5}}, "marks.charming"),
        ({"response": ""}, "response"),
        ({"context": [["narrator", "a"]]}, "context.0.0"),
    ],
)
def test_a_wrong_row_of_marks_is_named_with_its_field(tmp_path: Path, changed: dict[str, object], field: str) -> None:
    row = {"context": [["user", "a"]], "response": "b", "marks": {"overall": 0.5}, **changed}
    (tmp_path / "marks.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(BadFileError, match=rf"line 1: {field}"):
        list(read_marked_turns(tmp_path / "marks.jsonl"))
