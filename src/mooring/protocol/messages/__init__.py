"""What travels between roles, and the bounded readers of it; nothing here knows who sends it."""
