"""Other engines for the same protocol, optional, and no result differs: participants over NVIDIA FLARE, the analyst on Dask."""
