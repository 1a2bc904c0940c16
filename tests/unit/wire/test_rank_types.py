import pytest
from pydantic import ValidationError
from turnscore_wire import RankRequest, describe_refusal

NAN = float("nan")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"candidates": []}, "candidates"),
        ({"candidates": ["a", " "]}, "candidates.1"),
        ({"candidates": ["a", "\ud800"]}, "candidates.1"),
        ({"candidates": ["a"], "weights": {"fed": -1}}, "weights.fed"),
        ({"candidates": ["a"], "weights": {"fed": NAN}}, "weights.fed"),
        ({"candidates": ["a"], "weights": {"fed": True}}, "weights.fed"),
        ({"candidates": ["a"], "weights": {str(each): 1 for each in range(65)}}, "weights"),
        ({"candidates": ["a"], "response": "a"}, "response"),
    ],
)
def test_a_wrong_request_names_its_field(fields, field):
    with pytest.raises(ValidationError) as refused:
        RankRequest.model_validate(fields)
    assert describe_refusal(refused.value)[0] == field
