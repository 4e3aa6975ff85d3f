"""Running experiments: what is missing is run, stored and resumed."""
