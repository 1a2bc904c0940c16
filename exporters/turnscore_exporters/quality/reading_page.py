"""Writes the table of examples in docs/reading-the-scores.md: ten good and ten bad turns with the starters' numbers.

`python -m turnscore_exporters.quality.reading_page docs/reading-the-scores.md` writes it again; `--check` compares.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turnscore_assessment.agreement.scoring import load_bundles, make_turn
from turnscore_assessment.data.dialogues import alternate
from turnscore_assessment.rendering import table_head, table_row
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scorers.quality import HEADS
from turnscore_core.scorers.scorer import RawScore
from turnscore_core.scoring import score_turns

BEGIN, END = "<!-- examples: begin -->", "<!-- examples: end -->"
KINDS = ("quality", "engagement", "sentiment_stop")

# Written for this page: `good` fits, `bad` has the fault.
EXAMPLES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("reading_examples.json").read_text("utf-8"))


def render_examples(scorers: dict[str, LoadedScorer]) -> str:
    """The table: a row for each turn with its percentiles, and the lowest head of quality."""
    turns = [(each["context"], each["good"], "") for each in EXAMPLES]
    turns += [(each["context"], each["bad"], each["fault"]) for each in EXAMPLES]
    asked = [make_turn(alternate(context), response) for context, response, _ in turns]
    scores = {kind: score_turns(scorers[kind], asked) for kind in KINDS if kind in scorers}
    header = ["the user said", "the response", "", "quality", "percentile", "lowest heads", *KINDS[1:]]
    rows = table_head(header)
    for place, (context, response, fault) in enumerate(turns):
        raw = {kind: found[place] for kind, found in scores.items()}
        others = [f"{scorers[kind].percentile(raw[kind]):.0f}" for kind in KINDS[1:]]
        quality = raw["quality"]
        cells = [
            *(context[-1], response, fault or "fits"),
            *(f"{quality.value:.2f}", f"{scorers['quality'].percentile(quality):.0f}", _lowest(quality), *others),
        ]
        rows.append(table_row(cells))
    return "\n".join(rows)


def _lowest(score: RawScore) -> str:
    """The two heads with the lowest percentiles."""
    ranked = sorted(HEADS, key=lambda name: score.details[f"{name}_percentile"])
    return ", ".join(f"{name} {score.details[f'{name}_percentile']:.0f}" for name in ranked[:2])


def replace_examples(page: str, table: str) -> str:
    """The page with the table between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def main(arguments: Sequence[str]) -> int:
    """Writes or checks the page; 1 where it differs."""
    path = Path(next(each for each in arguments if not each.startswith("-")))
    page = path.read_text(encoding="utf-8")
    wanted = replace_examples(page, render_examples(load_bundles(KINDS)))
    if "--check" not in arguments:
        path.write_text(wanted, encoding="utf-8")
        return 0
    return 0 if wanted == page else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
