"""What the pages have a reader type parses as it stands: commands, options and values, none of them run."""

import shlex
from pathlib import Path

import pytest
from support.documented_commands import PROGRAMS, all_commands, read_blocks, read_spans, refusal_of
from support.sample_commands import PAGES, QUICK, read_commands, shorten

SHORTENED = [shorter for page in PAGES for words in read_commands(page) if (shorter := shorten(words)) != words]
BLOCKS, SPANS = all_commands(read_blocks), all_commands(read_spans)
PLACEHOLDER = "KIND"


def name_of(found: object) -> str:
    return shlex.join(found)[:120] if isinstance(found, list) else str(found)


def test_every_program_is_in_a_block_that_can_be_copied() -> None:
    assert {words[0] for _, words in BLOCKS} == set(PROGRAMS)
    assert len(BLOCKS) >= 30
    assert len(SPANS) >= 10


@pytest.mark.parametrize(("page", "words"), BLOCKS, ids=name_of)
def test_a_command_that_can_be_copied_is_accepted_as_it_stands(page: Path, words: list[str], tmp_path: Path) -> None:
    assert refusal_of(words, tmp_path) is None


@pytest.mark.parametrize("words", SHORTENED, ids=name_of)
def test_a_command_that_the_sample_shortens_is_accepted(words: list[str], tmp_path: Path) -> None:
    assert refusal_of(words, tmp_path) is None


def test_every_way_of_shortening_a_command_is_of_a_documented_one() -> None:
    assert {begin for begin in QUICK for words in SHORTENED if shlex.join(words).startswith(begin)} == set(QUICK)


@pytest.mark.parametrize(("page", "words"), SPANS, ids=name_of)
def test_a_command_in_a_sentence_has_the_options_that_it_names(page: Path, words: list[str], tmp_path: Path) -> None:
    said = refusal_of(words, tmp_path)
    assert said is None or said.startswith("Missing ") or (PLACEHOLDER in words and "No such command" in said)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("turnscore-train baseline svm --data DATA", "Missing option '--output'"),
        ("turnscore-train baselines --data DATA --output OUT --exchange 300", "No such option"),
        ("turnscore-export usr --version 1 --output OUT --turns many", "valid integer"),
        ("turnscore-export usr --version 1 --output OUT --turns 20", "200"),
        ("turnscore-train baselin svm", "No such command"),
        ("turnscore-agreement a.jsonl --form dbdc4", "dbdc4"),
    ],
)
def test_a_command_that_would_be_refused_is_refused_here(line: str, said: str, tmp_path: Path) -> None:
    assert said in (refusal_of(shlex.split(line), tmp_path) or "")


def test_commands_are_found_in_blocks_and_sentences() -> None:
    page = """Run `turnscore-train engagement --steps 0`, not `turnscore-export`.

```
source .venv-dev/bin/activate
turnscore-train baseline svm --data DATA \\
    --output OUT     # a minute
TURNSCORE_MODELS=x make serve
```

    .venv-dev/bin/turnscore-data sample build/sample
"""
    assert read_spans(page) == [["turnscore-train", "engagement", "--steps", "0"]]
    assert read_blocks(page) == [
        ["turnscore-train", "baseline", "svm", "--data", "DATA", "--output", "OUT"],
        ["turnscore-data", "sample", "build/sample"],
    ]
