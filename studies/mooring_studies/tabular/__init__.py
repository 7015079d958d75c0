"""Studies of tables, and of how much joining gives over rows, participants and noise."""
