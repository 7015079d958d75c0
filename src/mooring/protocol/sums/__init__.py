"""Secure sums between organisations: every participant uploads sums over its rows, sealed in shares to combiners."""
