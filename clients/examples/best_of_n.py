"""Best of n: several replies are written, and the one that scores best is said.

    python best_of_n.py "hi, what did you do today?" "ok." "i hiked up a volcano! ever been on one?"

Needs `pip install ./clients` and a service at TURNSCORE_URL (http://localhost:3000).
"""

import sys
from collections.abc import Sequence

from turnscore_client import TurnLike, TurnScoreClient, TurnScoreError

# How much each scorer counts. Only these are asked: a scorer that `weights` does not name would count 1.
WEIGHTS = {"engagement": 1.0}

# Chosen: for 16 candidates engagement takes a tenth of it, the three scorers together more (docs/api.md).
SECONDS = 0.3


def choose(client: TurnScoreClient, context: Sequence[TurnLike], candidates: Sequence[str]) -> str:
    """The best of the candidates if the service answers in 300 ms; else the first one."""
    try:
        ranking = client.rank(
            candidates, context=context, scorers=list(WEIGHTS), weights=WEIGHTS, timeout_seconds=SECONDS
        )
    except TurnScoreError as error:
        print(f"not ranked: {error.code}", file=sys.stderr)
        return candidates[0]
    print(f"ranked by {ranking.weights}", file=sys.stderr)
    return candidates[ranking.candidates[0].index]


def main() -> None:
    """Chooses among what the command line offers."""
    if len(sys.argv) < 3:
        sys.exit("usage: python best_of_n.py QUESTION REPLY [REPLY ...]")
    question, *candidates = sys.argv[1:]
    with TurnScoreClient() as client:
        print(choose(client, [("user", question)], candidates))


if __name__ == "__main__":
    main()
