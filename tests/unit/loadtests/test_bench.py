"""The bare runtime, the comparison of servers, and profiles: ideal batches, right values, ratios of medians."""

import random
import sys
import time
from pathlib import Path

import pytest
from turnscore_core.loaded_scorer import load_scorer
from turnscore_core.scorers.fed.batch import Branch, Conversation, build_tree
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_load.bare_runtime import BareRuntime, BatchPlan, ideal_batches
from turnscore_load.contenders import EngagementRows
from turnscore_load.fed_ways import ModelShape, count_operations
from turnscore_load.profiled_service import LOOP, RULES, STAGES, ThreadSampler, describe, stage_of
from turnscore_load.scenarios.bench import BARE, Comparison, Measurement, ratios, turns_for
from turnscore_load.scenarios.corpus import CorpusCost, WatchedTree, cost_table, memory_lines
from turnscore_load.scenarios.profile import Profile, Way, line_table, stage_table
from turnscore_load.traffic import LENGTH_MIXES
from turnscore_wire import Turn

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("step", [1, 8])
def test_every_turn_is_in_one_ideal_batch_within_the_budget_and_widest_first(step: int):
    chance = random.Random(0)
    turns = [([1] * chance.randint(4, 128), [1] * chance.randint(4, 128)) for _ in range(300)]
    plan = BatchPlan(max_tokens=1024, runs=1, threads=1, width_step=step)
    batches = ideal_batches(turns, plan)
    assert sorted(place for batch in batches for place in batch) == list(range(300))
    widths = [max(len(row) for place in batch for row in turns[place]) for batch in batches]
    assert widths == sorted(widths, reverse=True)
    assert all(2 * len(batch) * plan.width(widest) <= 1024 for batch, widest in zip(batches, widths, strict=True))
    assert ideal_batches([([1] * 4,), ([1] * 99,)], BatchPlan(max_tokens=64, runs=1, threads=1)) == [[1], [0]]


def test_the_bare_runtime_gives_the_service_s_values_in_the_order_of_the_turns():
    rows = EngagementRows()
    items = [*rows.traffic.items(LENGTH_MIXES["mixed"], 12), {"context": [], "response": "an opening"}]
    scorer = load_scorer(rows.bundle, "cpu-int8", threads=1).scorer
    asked = [TurnToScore([Turn(**turn) for turn in item["context"]], item["response"]) for item in items]
    expected = [score.value for pack in scorer.encode(asked) for score in scorer.score([pack])]
    found = BareRuntime(str(rows.graph), 1).run_batches(rows.of(items), BatchPlan(max_tokens=512, runs=2, threads=1))
    assert found["values"] == pytest.approx(expected, abs=1e-4)
    assert len(set(found["values"])) > 1
    assert found["cpu_seconds"] > 0


def measured(contender: str, clients: int, turns: int, wall: float, cpu: float, **more: float) -> Measurement:
    return Measurement(
        contender=contender, mix="mixed", clients=clients, turns=turns, wall_seconds=wall, cpu_seconds=cpu, **more
    )  # type: ignore[arg-type]


COMPARISON = Comparison(
    labels={"turnscore": "turnscore", "other": "another"},
    measurements=[
        *(measured(BARE, 0, 100, 0.5, cpu) for cpu in (0.7, 0.8, 9.0)),
        *(measured("turnscore", 32, 200, 2.0, cpu, client_cpu_seconds=0.5, refused=3) for cpu in (1.9, 2.0, 2.2)),
        measured("turnscore", 1, 50, 1.0, 1.0, p50_ms=7.5),
        measured("turnscore", 8, 0, 1.0, 1.0),  # nothing was answered
        measured("other", 32, 100, 4.0, 5.0),
    ],
    bare_single_p50_ms={"mixed": [6.0, 6.5, 99.0]},
)


def test_a_comparison_holds_medians_and_their_ratios_and_no_number_for_what_was_not_measured():
    cell = COMPARISON.cell("turnscore", "mixed", 32)
    assert cell is not None
    assert (cell["cpu_ms"], cell["wall_ms"], cell["turns_per_second"], cell["refused"]) == (10.0, 10.0, 100.0, 3)
    assert cell["client_share"] == pytest.approx(0.2)
    assert COMPARISON.served_over_bare("turnscore", "mixed", 32) == pytest.approx(10 / 8)
    assert COMPARISON.throughput_over("turnscore", "other", "mixed", 32) == pytest.approx(4.0)
    assert COMPARISON.latency_above_bare("turnscore", "mixed") == pytest.approx(1.0)
    assert COMPARISON.cell("turnscore", "mixed", 8) is None
    assert COMPARISON.throughput_over("turnscore", "other", "mixed", 1) is None
    assert "| mixed | 32 | turnscore | 1.25 | - | 4.0 |" in ratios(COMPARISON)


@pytest.mark.parametrize(("clients", "size"), [(1, 1), (32, 1), (8, 16), (128, 16)])
def test_a_measurement_has_whole_requests_and_keeps_every_client_busy(clients: int, size: int):
    count = turns_for(200, LENGTH_MIXES["mixed"], clients, size)
    assert count % size == 0
    assert count >= clients * size


def test_the_arithmetic_of_fed_counts_tokens_pairs_and_predictors():
    shape, tree = ModelShape(layers=2, width=10, vocabulary=1000), build_tree([[1, 2, 3], [1, 4]])  # feeds 1 and 2
    conversation = Conversation((0, 5, 0), (Branch(3, (), tree),), with_context=False)
    pairs = 6 + (3 + 1) + (3 + 2)
    first_layer, last_layer = 5 * 12 * 100, 5 * 3 * 100 + 3 * 9 * 100
    expected = 2 * (first_layer + last_layer + 2 * pairs * 2 * 10 + 3 * 10 * 1000)
    assert count_operations([conversation], shape) == expected


def cost(way: str, cpu: float, turns: int = 1000) -> CorpusCost:
    held = {"run": 200 * 2**20, "object store": 2**10}
    return CorpusCost(
        way=way, turns=turns, cpu_seconds=cpu, wall_seconds=10.0, tree_cpu_seconds=12.0, peak_bytes=2**20,
        tenth_bytes=(2**20, 3 * 2**20), peak_by_holder=held,
    )  # fmt: skip


def test_each_way_of_a_corpus_is_compared_with_the_bare_runtime_and_large_ones_say_who_held_memory():
    text = cost_table([cost("local", 3.0), cost("bare", 2.5)])
    assert [line.split(" | ")[3:5] for line in text.splitlines()[2:]] == [["2.50", "1.00"], ["3.00", "1.20"]]
    assert memory_lines([cost("ray", 9.0)]) == []
    assert (
        "the run's process 200 MiB, its object store less than 1 MiB." in memory_lines([cost("ray", 9.0, 100_000)])[1]
    )
    tree = WatchedTree(pid=0, looks=[(at, {"run": at}) for at in range(1, 101)], _cpu_seconds={(0, 0.0): 100.0})
    assert (tree.most_bytes_in_tenth(1), tree.most_bytes_in_tenth(9)) == (20, 100)


@pytest.mark.skipif(sys.platform != "linux", reason="the timer is Linux's")
def test_the_sampler_counts_what_the_thread_does_and_not_what_it_waits_for():
    sampler = ThreadSampler()
    sampler.start()
    begun = time.thread_time()
    while sampler.counts.total() < 20 and time.thread_time() < begun + 10:  # a busy machine's kernel counts late
        for _ in range(100_000):
            pass
    used = time.thread_time() - begun
    time.sleep(0.2)
    sampler.stop()
    assert used - 0.01 <= sampler.cpu_seconds < used + 0.1
    assert sampler.counts.total() >= 20


def test_every_rule_about_our_own_code_names_a_place_that_exists():
    ours = [part.partition(":")[0] for part, _ in RULES if part.startswith(("turnscore_", "scheduling/", "_patches/"))]
    files = [str(file) for folder in ("service", "core", "clients") for file in (ROOT / folder).rglob("*.py")]
    assert [part for part in ours if not any(part in file for file in files)] == []


def test_a_line_belongs_to_its_function_s_stage_and_any_other_to_the_event_loop():
    assert stage_of("/x/uvicorn/protocols/http/httptools_impl.py", "send") == "HTTP: connections and parsing"
    assert stage_of("/x/turnscore_core/scorers/engagement.py", "encode") == "tokenizing"
    assert stage_of("/x/turnscore_core/scorers/engagement.py", "last_user_run") is None
    assert describe(sys._getframe())[0] == LOOP


def test_a_profile_is_in_microseconds_per_turn(tmp_path: Path):
    line = tmp_path / "line.py"
    line.write_text("a = b | c\n")
    samples = [(STAGES[1], str(line), 1, 30), (LOOP, "/elsewhere/loop.py", 7, 10)]
    profile = Profile(way=Way(label="HTTP"), turns=100, cpu_seconds=0.05, loop_seconds=0.04, samples=samples)
    stages = stage_table([profile])
    assert f"| {STAGES[1]} | 300 |" in stages
    assert "| **the event loop's thread** | 400 |" in stages
    assert "| **other threads** | 100 |" in stages
    assert "`a = b \\| c` | 300.0 |" in line_table(profile)
