"""Pace: how long people take between two turns of a chatbot, and how long anybody waits for an answer. Pure."""

READING_WORDS_PER_MINUTE = 238
"""Silent reading of English, mean of 190 studies (Brysbaert 2019, How Many Words Do We Read Per Minute)."""
TYPING_WORDS_PER_MINUTE = 52
"""Mean of 168,000 volunteers (Dhakal et al. 2018, Observations on Typing from 136 Million Keystrokes)."""
PATIENCE_SECONDS = 30.0
"""How long an answer is waited for; longer than any deadline that is asked for here. Chosen."""


def pause_seconds(read_words: int, typed_words: int, pace: float) -> float:
    """Seconds to read the system's turn and type the next; `pace` 2 is twice as fast as people are."""
    minutes = read_words / READING_WORDS_PER_MINUTE + typed_words / TYPING_WORDS_PER_MINUTE
    return 60 * minutes / pace
