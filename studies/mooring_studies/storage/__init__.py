"""Results on disk: rows as they are finished, facts of the machine, what a finished study leaves."""
