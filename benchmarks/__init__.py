"""Speed and quality, measured as ratios in one run."""
