"""experiments/quality_teacher.py: marks are read as they were given, or refused; what ratings teachers see."""

import json

import pytest
import quality_teacher
import torch
from quality_teacher import Teacher
from turnscore_assessment.data.dialogues import MARKS, LabelledTurn, Population
from turnscore_assessment.errors import BadFileError
from turnscore_exporters.quality.training import read_marked_turns

CONTEXT = (("system", "a b c"), ("user", "d e f g"))


def test_marks_are_read_as_they_were_given(tiny_bert, tmp_path, monkeypatch):
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


def test_teachers_see_no_rating_that_is_measured_or_not_for_sale(tmp_path, monkeypatch):
    turns = {
        name: [LabelledTurn(context=CONTEXT, response=name, labels={"rating": 3.0}, set_name=name)]
        for name in ("persona-zhao (fitted on)", "dailydialog-zhao (fitted on)", "persona-zhao (chosen on)", "dbdc3")
    }
    said = [{"speaker": "user", "text": "hi"}, {"speaker": "system", "text": "a"}]
    rows = [{"turns": said, "ratings": {"fun": n, "interesting": "N/A"}} for n in (1, 2)] + [
        {"turns": [said[0], {**said[1], "text": "held"}], "ratings": {"fun": 3}}
    ]
    assessed = "human_assessment/free_run1_pass.jsonl.gz"
    held = LabelledTurn(context=CONTEXT, response="held", labels={})
    monkeypatch.setattr(quality_teacher, "RATED_DIALOGUES", {assessed: ()})
    monkeypatch.setattr(quality_teacher, "read_development_sets", lambda _: turns)
    monkeypatch.setattr(quality_teacher, "read_judged_turns", lambda *_: [held])
    monkeypatch.setattr(quality_teacher, "read_population", lambda _: Population([], frozenset({f"{assessed} 1 0"})))
    monkeypatch.setattr(quality_teacher, "read_rows", lambda _: enumerate(rows, start=1))
    found = quality_teacher.read_rated(tmp_path)
    assert [(each.set_name, each.rating) for each in found] == [("persona-zhao (fitted on)", 3.0), (assessed, 2.0)]


WRONG_MARKS = [
    ({"marks": {"overall": 4.5}}, "marks.overall"),
    ({"marks": {"charming": 0.5}}, "marks.charming"),
    ({"response": ""}, "response"),
    ({"context": [["narrator", "a"]]}, "context.0.0"),
]


@pytest.mark.parametrize(("changed", "field"), WRONG_MARKS)
def test_a_wrong_row_of_marks_is_named_with_its_field(tmp_path, changed, field):
    row = {"context": [["user", "a"]], "response": "b", "marks": {"overall": 0.5}, **changed}
    (tmp_path / "marks.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(BadFileError, match=rf"line 1: {field}"):
        list(read_marked_turns(tmp_path / "marks.jsonl"))
