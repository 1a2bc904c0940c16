"""The study's refusals, each with a code for the page, a sentence for the worker and an HTTP status."""

from enum import Enum


class Refusal(Enum):
    """Status and sentence by code. No sentence says which system is behind a conversation."""

    UNKNOWN_LINK = 401, "This link is not known. Please open the link that you were sent, whole."
    FOREIGN_ORIGIN = 403, "The request does not come from this study's page."
    NO_SUCH_DIALOGUE = 404, "There is no such conversation."
    NO_SUCH_PAGE = 404, "There is no such page."
    NO_SUCH_METHOD = 405, "This request has the wrong method."
    NOT_AGREED = 409, "You have not agreed to take part yet."
    TEXT_CHANGED = 409, "The text that you agreed to has changed. Please read it again."
    NOT_OPEN = 409, "This conversation is not open."
    OUT_OF_TURN = 409, "The conversation has gone on elsewhere, perhaps in another tab."
    BUSY = 409, "The chatbot is still answering."
    NO_MORE_INPUTS = 409, "This conversation has reached its end. Please rate it."
    TOO_FEW_INPUTS = 409, "Please talk a little longer before you rate the conversation."
    ALREADY_RATED = 409, "This conversation has been rated already."
    STILL_ANSWERS = 409, "The chatbot has not failed so often. Please try again."
    LEFT = 410, "You have left the study, and what you said and rated is deleted."
    TOO_LARGE = 413, "The request is too large."
    NOT_JSON = 415, "The request must be JSON."
    INVALID = 422, "The request is not valid."
    NO_REPLY = 502, "The chatbot did not answer. Please try again."
    FULL = 503, "There are too many conversations at the moment. Please try again in a few minutes."
    BROKEN = 500, "Something went wrong. What you said so far is stored; please load the page again."

    def __init__(self, status: int, sentence: str) -> None:
        self.status = status
        self.sentence = sentence

    @property
    def code(self) -> str:
        """Its name on the wire."""
        return self.name.lower()


class RefusedError(Exception):
    """A refused request; `detail` replaces the sentence."""

    def __init__(self, refusal: Refusal, detail: str = "") -> None:
        super().__init__(detail or refusal.sentence)
        self.refusal = refusal
