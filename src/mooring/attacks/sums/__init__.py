"""Attacks by an analyst that colludes with participants on a total of sums. Each attack has a file of its own."""

from mooring.attacks.sums.leverage import score_without_sums

__all__ = ["score_without_sums"]
