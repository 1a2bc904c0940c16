"""The summary's figures against their definitions."""

import random

from turnscore_client._files.scoring import ClusteredMean


def test_the_interval_covers_the_true_mean_as_often_as_it_says_where_turns_of_a_dialogue_are_alike():
    draw, covered = random.Random(5), 0
    for _ in range(400):
        mean = ClusteredMean()
        for _ in range(60):
            level = draw.gauss(0.5, 0.2)
            mean.add([draw.gauss(level, 0.05) for _ in range(draw.randint(1, 9))])
        low, high = mean.interval()
        covered += low <= 0.5 <= high
    assert 0.91 <= covered / 400 <= 0.98


def test_five_dialogues_have_a_mean_and_no_interval_and_six_have_students():
    mean = ClusteredMean()
    for value in (0.1, 0.2, 0.3, 0.4, 0.5):
        mean.add([value])
    assert (round(mean.mean, 6), mean.interval(), mean.interval_within(1)) == (0.3, None, None)
    mean.add([0.6])
    low, high = mean.interval() or (0, 0)
    assert abs((high - low) / 2 - 2.5706 * (0.035 / 6) ** 0.5) < 0.005


def test_an_interval_of_shares_stays_within_them_and_says_something_where_all_are_equal():
    none_low = ClusteredMean()
    for _ in range(35):
        none_low.add([0.0])
    low, high = none_low.interval_within(1) or (-1, -1)
    assert (low, round(high, 3)) == (0.0, 0.099)  # Wilson's, of 0 in 35
    few = ClusteredMean()
    for value in (45.0, 99.0, 99.0, 98.0, 97.0, 99.0):
        few.add([value])
    low, high = few.interval_within(100) or (-1, -1)
    assert 0 < low < few.mean < high < 100
