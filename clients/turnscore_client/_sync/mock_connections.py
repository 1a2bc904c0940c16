# `make sync-client` made this of _async/mock_connections.py: change that file.
"""The mock's connections for threads: lines and channels that are answered in this process, at once."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from turnscore_wire import ConversationMessage, ConversationReply

from turnscore_client._mock.conversation import MockConversation
from turnscore_client._retry import OutOfTimeError

Pairs = Sequence[tuple[str, str]]


class MockLine:
    """A line to a conversation of the mock."""

    def __init__(self, conversation: MockConversation) -> None:
        self._conversation = conversation
        self._replies: deque[ConversationReply] = deque()

    def send(self, message: ConversationMessage, seconds_left: Callable[[], float]) -> None:
        """Answers at once."""
        self._replies.extend(self._conversation.answer(message))

    def receive(self, seconds_left: Callable[[], float]) -> ConversationReply:
        """The next answer; without one the time is over at once."""
        if not self._replies:
            raise OutOfTimeError
        return self._replies.popleft()

    def close(self) -> None:
        """Forgets the answers that were not taken."""
        self._replies.clear()


class MockGrpcChannel:
    """A channel of gRPC to the mock; `answer` gives the message that answers one, by the name of the call."""

    def __init__(
        self, answer: Callable[[str, bytes, Pairs], bytes], open_line: Callable[[Mapping[str, str]], MockLine]
    ) -> None:
        self._answer = answer
        self.open_line = open_line

    def unary_unary(self, method: str) -> Any:
        """What a client calls with a message, for a message."""

        def ask(data: bytes, *, metadata: Pairs, **_: float) -> bytes:
            return self._answer(method.rpartition("/")[2], data, metadata)

        return ask

    def close(self) -> None:
        """Has nothing to close."""
