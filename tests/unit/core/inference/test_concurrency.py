import threading

from turnscore_core.inference.concurrency import Concurrency, Sample, choose, take_sample


def test_concurrent_batches_take_the_threads_that_cost_least():
    samples = {1: Sample(0.010, 0.010), 4: Sample(0.010, 0.015), 16: Sample(0.010, 0.030)}
    assert choose(samples, 16) == Concurrency(batches=16, threads=1)


def test_an_idle_runtime_gets_more_threads_where_that_is_clearly_faster():
    samples = {1: Sample(0.047, 0.046), 2: Sample(0.033, 0.054)}
    assert choose(samples, 2) == Concurrency(batches=2, threads=1, wide_threads=2)
    samples[2] = Sample(0.043, 0.054)
    assert choose(samples, 2) == Concurrency(batches=2, threads=1)


def test_the_cost_is_taken_with_every_concurrent_batch_busy():
    meeting = threading.Barrier(3)
    seen = {threading.main_thread()}

    def call() -> None:
        if threading.current_thread() not in seen:
            seen.add(threading.current_thread())
            meeting.wait(60)  # passes only when three run at once

    assert take_sample(call, concurrent_batches=3).latency_seconds > 0
    assert len(seen) == 4
