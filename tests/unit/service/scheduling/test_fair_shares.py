from turnscore_service.scheduling.fairness import MOST_CALLERS, FairOrder


def serve(order: FairOrder, waiting: dict[str, int], times: int) -> list[str]:
    """Who is served in so many rounds, each of whom waits on; `waiting` says what each costs."""
    served = []
    for _ in range(times):
        served.append(order.choose(waiting))
        order.charge(served[-1], waiting[served[-1]])
    return served


def joined(*callers: str) -> FairOrder:
    order = FairOrder()
    for caller in callers:
        order.join(caller)
    return order


def test_who_comes_after_a_flood_is_served_next():
    order = joined("flood")
    serve(order, {"flood": 1000}, 50)
    order.join("other")
    assert order.choose(["flood", "other"]) == "other"


def test_who_asks_little_again_and_again_is_always_next():
    order = joined("flood")
    for _ in range(100):
        serve(order, {"flood": 1000}, 1)
        order.join("other")
        assert serve(order, {"flood": 1000, "other": 30}, 1) == ["other"]


def test_two_who_keep_asking_get_equal_parts_whatever_the_size_of_their_work():
    served = serve(joined("large", "small"), {"large": 40, "small": 10}, 1000)
    assert 198 <= served.count("large") <= 202


def test_who_was_away_is_owed_nothing_for_it():
    order = joined("busy")
    serve(order, {"busy": 10}, 100)
    order.join("away")
    assert serve(order, {"busy": 10, "away": 10}, 10).count("away") <= 6


def test_no_more_callers_are_remembered_than_stated():
    order = FairOrder()
    for number in range(10 * MOST_CALLERS):
        order.join(f"caller {number}")
        order.charge(f"caller {number}", 5)
    assert len(order._had) == MOST_CALLERS
