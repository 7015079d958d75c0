"""The studies of the paper and those beyond it: settings, data, runs, results on disk, figures, a page."""
