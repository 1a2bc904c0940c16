"""A chatbot loop: one conversation held open, every reply scored as it is said.

    python chatbot.py                   type; an empty line ends it

Needs `pip install './clients[websocket]'` and a service at TURNSCORE_URL (http://localhost:3000).
"""

import sys
from collections.abc import Iterable, Iterator

from turnscore_client import Conversation, TurnScoreClient, TurnScoreError


def reply_to(text: str) -> str:
    """The bot. Yours is better."""
    return "ok." if len(text) > 40 else f"tell me more about {text.split()[-1].strip('.,!?')}! what was it like?"


def chat(conversation: Conversation, said_by_user: Iterable[str]) -> Iterator[str]:
    """A line to show for each thing the user says: the reply, its percentile and the conversation's mean so far."""
    for text in said_by_user:
        reply = reply_to(text)
        try:
            conversation.say("user", text)
            scored = conversation.say("system", reply)
        except TurnScoreError as error:  # the user gets the reply whether or not it could be scored
            yield f"{reply}   (not scored: {error.code})"
            continue
        score, dialogue = scored.scores["engagement"], scored.dialogue["engagement"]
        yield f"{reply}   (more engaging than {score.percentile:.0f} % of turns; mean so far {dialogue.mean:.2f})"


def main() -> None:
    """Talks with the person at the keyboard."""
    lines = iter(lambda: sys.stdin.readline().strip(), "")
    with TurnScoreClient(timeout_seconds=2.0) as client, client.conversation(scorers=["engagement"]) as conversation:
        for line in chat(conversation, lines):
            print(line, flush=True)


if __name__ == "__main__":
    main()
