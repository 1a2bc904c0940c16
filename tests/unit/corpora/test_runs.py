"""Whole runs: locks, workers that die, progress, the command's words and exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
from support.corpora import MortalEngine, WordEngine, content_of, dialogue_rows, job_of, turns_of, write_lines
from support.files import run_command
from turnscore_client import InternalError
from turnscore_client._files.runs import StoppedError
from turnscore_client.testing import MockTurnScore
from turnscore_corpus.command import app, run_job
from turnscore_corpus.engines import work as engines
from turnscore_corpus.engines.work import EngineChoice, RayChoice, Work, process_block, size_pool
from turnscore_corpus.inputs.files import Columns, find_files
from turnscore_corpus.inputs.plan import make_plan
from turnscore_corpus.outputs.folder import FINISHED_FILE, OutputFolder, describe_job
from turnscore_corpus.outputs.stores import LOCK_FILE, BusyOutputError, Owner, hold_folder, open_store
from typer.testing import CliRunner


@pytest.fixture
def lines(tmp_path):
    return write_lines(tmp_path / "a.jsonl.gz", dialogue_rows(30))


def test_a_finished_run_says_so_and_done_again_does_nothing(lines, tmp_path):
    totals = run_job(job_of(lines, tmp_path / "out"))
    assert (totals["blocks"], totals["rows"], totals["dialogues"]) == (8, 30, 30)
    assert json.loads((tmp_path / "out" / FINISHED_FILE).read_text()) == totals
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.parquet")}
    assert run_job(job_of(lines, tmp_path / "out")) == totals
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.parquet")} == before


def test_a_run_that_left_blocks_undone_does_not_say_that_it_is_finished(lines, tmp_path):
    with pytest.raises(StoppedError, match="8 blocks were not committed, the first of them block 0"):
        run_job(job_of(lines, tmp_path / "out", run_elsewhere=lambda _: None))
    assert not (tmp_path / "out" / FINISHED_FILE).exists()


def test_a_worker_that_is_killed_is_replaced_and_the_output_is_one_run_s(lines, tmp_path):
    memory = tmp_path / "memory"
    memory.mkdir()
    run_job(job_of(lines, tmp_path / "whole"))
    made = make_plan(find_files([str(lines)]), Columns(), 4)
    done = []
    work = Work(
        blocks=made.blocks,
        open_engine=partial(MortalEngine, memory),
        output=OutputFolder.begin(str(tmp_path / "out"), describe_job(made, WordEngine(), {}, 4)),
        on_block=lambda block: done.append(block.block),
    )
    engines.run_processes(work, 1)
    assert len(list(memory.iterdir())) == 1
    assert sorted(done) == list(range(8))
    assert content_of(tmp_path / "out") == content_of(tmp_path / "whole")


def test_a_block_that_kills_every_worker_stops_the_run_and_the_same_command_goes_on(lines, tmp_path, monkeypatch):
    from concurrent.futures.process import BrokenProcessPool

    pools = []

    def die(work, workers, left):
        pools.append(len(left))
        if len(pools) == 1:
            left.popleft()
        raise BrokenProcessPool

    monkeypatch.setattr(engines, "_run_pool", die)
    with pytest.raises(StoppedError, match="3 workers died in a row"):
        run_job(job_of(lines, tmp_path / "out", workers=2))
    assert pools == [8, 7, 7]


KILLED = """
import os, sys
from pathlib import Path
from support.corpora import WordEngine, holds, job_of
from turnscore_corpus.command import run_job

class Slow(WordEngine):
    def answer(self, requests):
        if holds(requests, "13 "):
            print("under way", flush=True)
            sys.stdin.read()
        return super().answer(requests)

run_job(job_of(Path(sys.argv[1]), sys.argv[2], open_engine=Slow))
"""


def test_after_kill_minus_nine_of_the_run_the_same_command_goes_on(lines, tmp_path):
    run_job(job_of(lines, tmp_path / "whole"))
    path = os.pathsep.join(sys.path)
    words = [sys.executable, "-c", KILLED, str(lines), str(tmp_path / "out")]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    ) as process:
        assert process.stdout.readline() == "under way\n"
        with pytest.raises(BusyOutputError, match=f"is being written by process {process.pid} on "):
            run_job(job_of(lines, tmp_path / "out"))
        process.kill()
    assert len(list((tmp_path / "out" / "manifests").iterdir())) == 3
    done = []
    whole = process_block

    def note(block, *given):
        done.append(block.number)
        return whole(block, *given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(engines, "process_block", note)
        run_job(job_of(lines, tmp_path / "out"))
    assert done == [3, 4, 5, 6, 7]
    assert content_of(tmp_path / "out") == content_of(tmp_path / "whole")


def test_an_interrupt_stops_the_run_between_its_commits(lines, tmp_path, monkeypatch):
    def interrupt(block, *given):
        if block.number == 2:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        return process_block(block, *given)

    monkeypatch.setattr(engines, "process_block", interrupt)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(StoppedError, match="interrupted"):
        run_job(job_of(lines, tmp_path / "out"))
    assert signal.getsignal(signal.SIGTERM) is before
    assert len(list((tmp_path / "out" / "manifests").iterdir())) == 2


def test_on_an_object_store_an_owner_that_lives_is_believed_and_a_dead_one_is_not(bucket):
    store = open_store(bucket)
    other = Owner(host="elsewhere", pid=7)
    store.put(LOCK_FILE, other.write())

    def it_lives(seconds):
        store.put(LOCK_FILE, other.write(1))

    with pytest.raises(BusyOutputError, match="process 7 on elsewhere"), hold_folder(bucket, store, it_lives):
        pytest.fail("held")
    with hold_folder(bucket, store, lambda _: None):
        assert other.token.encode() not in (store.get(LOCK_FILE) or b"")
    assert store.get(LOCK_FILE) is None


def test_on_an_object_store_the_later_of_two_that_begin_together_has_the_folder(bucket):
    store = open_store(bucket)

    def another_comes(seconds):
        store.put(LOCK_FILE, Owner(host="elsewhere", pid=7).write())

    with pytest.raises(BusyOutputError, match="process 7 on elsewhere"), hold_folder(bucket, store, another_comes):
        pytest.fail("held")


def command(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def without_models(monkeypatch):
    monkeypatch.setattr(EngineChoice, "open", lambda choice: WordEngine())


@pytest.mark.usefixtures("without_models")
def test_the_command_takes_several_inputs_and_ends_with_what_it_did(lines, tmp_path):
    other = write_lines(tmp_path / "b.jsonl", [*dialogue_rows(3), "no json"])
    done = command(
        "score", lines, other, tmp_path / "out", "--workers", 1, "--system-column", "bot", "--day-column", "at"
    )
    assert (done.exit_code, done.stderr) == (
        0, f"turnscore: 48 turns of 33 dialogues are in {tmp_path / 'out'}; set aside: 1\n",
    )  # fmt: skip
    [first, *_] = content_of(tmp_path / "out")["dialogues"]
    assert (first["system"], first["day"]) == ("a", "2026-11-01")


WRONG_OPTIONS = [
    (["--row", "line"], 2, "is not one of 'dialogue', 'turn'"),
    (["--format", "xml"], 2, "is not one of 'parquet', 'jsonl', 'csv'"),
    (["--speakers", "bot"], 2, "'bot' must be NAME=user or NAME=system"),
    (["--options", "{"], 2, "is neither JSON nor a file of it"),
    (["--options", '{"fed": 3}'], 2, "fed: input should be"),
    (["--scorers", "engagement,,fed"], 2, "has an empty name"),
    (["--turns-column", "a", "--messages-column", "b"], 2, "give either --messages-column or --turns-column"),
    (["--turns-column", "dialog"], 2, "--turns-column: "),
    (["--redis", "http://cache"], 2, "must begin with one of redis://"),
    (["--redis", "no-such-file"], 2, "No such file"),
    (["--redis-namespace", "a b"], 2, "must be 1 to 64 of the characters a-z, A-Z, 0-9, _ and -"),
    (["--engine", "spark"], 2, "unknown engine 'spark': use local, ray, or a URL"),
    (["--engine", "http://a.test", "--models", "a"], 2, "--models: does not apply to a service"),
    (["--engine", "http://a.test", "--workers", 2], 2, "--workers: does not apply to a service"),
    (["--engine", "http://a.test", "--address", "auto"], 2, "--address: does not apply to a service"),
    (["--engine", "http://a test"], 2, "url must look like http://host:port"),
    (["--engine", "ray"], 2, "is not installed: install turnscore-corpus[ray]"),  # as Ray is not, here
    (["--api-key", "k"], 2, "--api-key: needs a service's address in --engine"),
    (["--address", "auto"], 2, "--address: needs --engine ray"),
    (["--scorers", "charm"], 1, "--scorers names charm, for which there is no bundle; there are: engagement"),
    (["--models", "./charm"], 1, "there is no bundle folder ./charm"),
]


@pytest.mark.usefixtures("without_models")
@pytest.mark.parametrize(("words", "code", "message"), WRONG_OPTIONS)
def test_wrong_options_are_refused_by_name(words, code, message, lines, tmp_path):
    done = command("score", lines, tmp_path / "out", *words)
    assert done.exit_code == code
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("without_models")
def test_an_output_that_would_be_input_when_the_run_goes_on_is_refused(lines, tmp_path):
    for output in (tmp_path, tmp_path / "in" / "out"):
        done = command("score", tmp_path, output, "--workers", 1)
        assert (done.exit_code, f"the output {output} lies in the input {tmp_path}" in done.stderr) == (1, True)
    assert [each.name for each in tmp_path.iterdir()] == [lines.name]
    for _ in range(2):
        assert command("score", tmp_path, tmp_path / "_out", "--workers", 1).exit_code == 0


def test_a_running_service_answers_blocks_and_the_same_command_goes_on(tmp_path):
    lines, said = write_lines(tmp_path / "a.jsonl", [*dialogue_rows(12), {"turns": turns_of("so?", "broken")}]), []

    def scores(request):
        said.append(request.response)
        if len(said) == 8:
            os.kill(os.getpid(), signal.SIGTERM)
        if len(said) == 18:
            mock.break_next(times=100)
        if request.response == "broken":
            raise InternalError("the model failed")
        return {"engagement": len(request.response.split()) / 100}

    mock = MockTurnScore(scores)
    words = ["corpus", "score", lines, tmp_path / "out", "--engine", "http://a.test", "--block-dialogues", 4]
    mock.fail_next("unauthenticated", "the API key is wrong")
    refused = run_command(mock, *words, "--api-key", "wrong")
    assert (refused.exit_code, "the API key is wrong" in refused.stderr) == (3, True)
    assert "no such scorer is loaded" in run_command(mock, *words, "--scorers", "qualty").stderr
    assert not (tmp_path / "out" / "job.json").exists()
    for reason in ("interrupted", "the service took no line for 5 s"):
        stopped = run_command(mock, *words, "--wait", 5)
        assert (stopped.exit_code, f"stopped: {reason}" in stopped.stderr) == (3, True)
    done = len(list((tmp_path / "out" / "manifests").iterdir()))
    mock._planned.clear()
    resumed = run_command(mock, *words)
    assert (resumed.exit_code, f"{done} of 4 blocks are done; resuming" in resumed.stderr, done > 0) == (0, True, True)
    found = content_of(tmp_path / "out")
    assert [(row["dialogue"], row["code"]) for row in found["set_aside"]] == [("row 13", "internal")]
    assert [row["dialogue"] for row in found["dialogues"]] == [f"d{number}" for number in range(12)]
    with mock.client() as client:
        mock.answer_next(200, client.models().model_dump_json().replace(":0.0.0", ":9.0.0").encode())
    stopped = run_command(mock, *words[:3], tmp_path / "other", *words[4:])
    told = "stopped: the service answered with engagement:0.0.0, and the output is of engagement:9.0.0"
    assert (stopped.exit_code, told in stopped.stderr) == (3, True)


POOLS = [
    ({"CPU": 5}, {}, 100, (2, 2)),
    ({"CPU": 99}, {}, 100, (96, 96)),
    ({"CPU": 99}, {}, 4, (4, 4)),
    ({"CPU": 19}, {"workers": 2}, 100, (2, 2)),
    ({"CPU": 2}, {"workers": 64}, 100, (1, 64)),  # the cluster is asked to grow
    ({"CPU": 32, "GPU": 4}, {"gpus_per_worker": 1.0}, 100, (4, 4)),
    ({"CPU": 32, "GPU": 1}, {"gpus_per_worker": 0.25}, 100, (4, 4)),
]


@pytest.mark.parametrize(("resources", "choice", "blocks", "size"), POOLS)
def test_workers_leave_ray_its_cpus_and_are_no_more_than_blocks(resources, choice, blocks, size):
    assert size_pool(resources, RayChoice(**choice), blocks) == size


NO_ROOM = [
    ({"CPU": 3}, {}, "one worker needs 4 CPUs"),
    ({"CPU": 32}, {"gpus_per_worker": 1.0}, "one worker needs 4 CPUs and 1 GPUs"),
]


@pytest.mark.parametrize(("resources", "choice", "needs"), NO_ROOM)
def test_a_cluster_without_room_for_a_worker_is_refused(resources, choice, needs):
    with pytest.raises(StoppedError, match=needs):
        size_pool(resources, RayChoice(**choice), 10)
