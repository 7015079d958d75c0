"""The data sets of the studies: files found, checked to the byte, split and partitioned."""
