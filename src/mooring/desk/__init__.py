"""`mooring desk`: the steps of a study as a page on this machine, over the functions that the commands call."""
