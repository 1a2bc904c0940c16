"""Subcommands of `turnscore-assess`: a module each, with one command (`run`) or several (`app`); `main` finds them."""
