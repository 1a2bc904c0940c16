"""What `loadtests/run.py NAME` runs: the `Scenario` of each module, whose fields are its options."""
