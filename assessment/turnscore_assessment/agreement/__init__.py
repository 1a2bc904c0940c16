"""Agreement with people: the scores of one file of judged dialogues against its judgements."""
