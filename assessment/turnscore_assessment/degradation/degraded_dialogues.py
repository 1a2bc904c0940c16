"""Degraded dialogues: recorded ones in which the system says something else at every turn. Writes no file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from turnscore_assessment.degradation.reply_corpus import ReplyCorpus
from turnscore_assessment.spoken_dialogues import SYSTEM, read_dialogues

SYSTEM_NAME = "degraded"


def degrade_dialogues(path: Path, corpus: ReplyCorpus, seed: int, is_same_file: bool) -> Iterator[dict[str, Any]]:
    """Each dialogue of a file with degraded replies: the same for the same seed, whatever else the file holds.

    Where the corpus is the same file, no reply comes from the dialogue itself.
    """
    for dialogue in read_dialogues(path):
        generator = np.random.default_rng([seed, dialogue.line])
        own = dialogue.line if is_same_file else None
        yield {
            "dialogue": f"{SYSTEM_NAME}-{dialogue.line}",
            "system": SYSTEM_NAME,
            "degraded": True,
            "turns": [
                {"speaker": speaker, "text": corpus.draw(generator, own) if speaker == SYSTEM else text}
                for speaker, text in dialogue.turns
            ],
        }
