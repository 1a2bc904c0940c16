"""What `loadtests/run.py NAME` runs: the `main` of each module takes options as arguments and returns a result."""
