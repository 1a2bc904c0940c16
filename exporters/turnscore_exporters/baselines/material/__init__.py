"""Training and test material: exchanges, wrong replies, judged turns kept out of training. Trains nothing."""
