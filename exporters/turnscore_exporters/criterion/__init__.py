"""A criterion of one's own: a linear head on the features of quality, from judged responses to a bundle."""
