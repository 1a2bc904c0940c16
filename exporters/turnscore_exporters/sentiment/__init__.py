"""The sentiment/stop model: labels, training, report and bundle."""
