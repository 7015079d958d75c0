"""The audit of sums: simulated totals, canaries, and what attackers learn from them."""
