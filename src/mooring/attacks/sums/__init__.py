"""Attacks by an analyst that colludes with participants on a total of sums. Each attack has a file of its own."""
