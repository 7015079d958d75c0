"""The image studies: one deployment's rows, noise, alignments, networks and attacks, in batches."""
