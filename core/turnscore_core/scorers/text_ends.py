"""Trimming: texts without what a scorer cannot read, so that no later step pays for it. Pure; makes no tokens.

A token is taken to be `CHARS_PER_TOKEN` characters long at most. What lies beyond so many characters a token of the
scorer's limit is left out before anything is hashed or tokenized, as if it had not been sent. White space around a
text does not count.
"""

CHARS_PER_TOKEN = 16
"""English text has four to five characters a token. Chosen: fewer tokens than its scorer has room for are left only of
text that is mostly white space, or whose words are longer than any dictionary's."""


def keep_beginning(text: str, chars: int) -> tuple[str, bool]:
    """At most so many characters from the text's beginning, and whether any were left out."""
    if len(text) <= chars:
        return text, False
    spoken = text.strip()
    return spoken[:chars], len(spoken) > chars


def keep_end(text: str, chars: int) -> tuple[str, bool]:
    """At most so many characters from the text's end, and whether any were left out."""
    if len(text) <= chars:
        return text, False
    spoken = text.strip()
    return spoken[max(0, len(spoken) - chars) :], len(spoken) > chars


def keep_ends(text: str, chars: int, end_chars: int) -> tuple[str, bool]:
    """At most so many characters, of which `end_chars` are from the text's end, and whether any were left out."""
    if len(text) <= chars:
        return text, False
    spoken = text.strip()
    if len(spoken) <= chars:
        return spoken, False
    return f"{spoken[: chars - end_chars - 1]} {spoken[len(spoken) - end_chars :]}", True
