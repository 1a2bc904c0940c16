"""What is trained on and what is asked: exchanges, wrong replies, judged turns kept out of them. Trains nothing."""
