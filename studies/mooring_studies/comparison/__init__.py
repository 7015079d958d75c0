"""Results read back: curves, and every number of the paper beside ours."""
