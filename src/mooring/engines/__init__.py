"""Other engines for the same protocol: participants over NVIDIA FLARE, the analyst on Dask. Optional, and no result differs."""
