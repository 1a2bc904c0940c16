"""A small open sample of every set, of our own sentences, so that each documented command can be tried."""
