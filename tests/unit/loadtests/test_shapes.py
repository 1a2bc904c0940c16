"""Shapes: users over time, never more than allowed, never longer than allowed."""

import pytest
from turnscore_load.users.shapes import MAX_SECONDS, MAX_USERS, SHAPES, Shape


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_has_from_one_user_to_all_of_them_and_ends_in_time(name):
    shape = Shape(name, users=20, seconds=100)
    users = [shape.users_at(second / 10) for second in range(1000)]
    assert min(users) >= 1
    assert max(users) == 20
    assert shape.users_at(100) is None


def test_steady_has_all_users_all_the_time():
    assert {Shape("steady", 20, 100).users_at(second) for second in range(100)} == {20}


def test_ramp_goes_up_in_equal_steps():
    users = [Shape("ramp", 40, 100).users_at(second) for second in range(100)]
    assert sorted(users) == users
    assert sorted(set(users)) == list(range(2, 41, 2))
    assert all(users.count(each) == 5 for each in set(users))


def test_spike_has_a_fifth_of_the_users_but_for_the_middle_third():
    users = [Shape("spike", 20, 90).users_at(second) for second in range(90)]
    assert users == [4] * 30 + [20] * 30 + [4] * 30


def test_soak_keeps_all_users_after_a_short_rise():
    users = [Shape("soak", 20, 1000).users_at(second) for second in range(1000)]
    assert users[0] == 1
    assert set(users[50:]) == {20}


@pytest.mark.parametrize(
    ("name", "users", "seconds"),
    [
        ("steady", 0, 10),
        ("steady", MAX_USERS + 1, 10),
        ("steady", 1, 0),
        ("steady", 1, MAX_SECONDS + 1),
        ("wave", 1, 1),
    ],
)
def test_a_shape_beyond_the_bounds_is_refused(name, users: int, seconds: float):
    with pytest.raises(ValueError, match="must be"):
        Shape(name, users, seconds)
