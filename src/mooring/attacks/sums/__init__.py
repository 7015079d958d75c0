"""Attacks on the total of secure sums, by an analyst who colludes with participants; one file per attack."""

from mooring.attacks.sums.leverage import score_without_sums

__all__ = ["score_without_sums"]
