"""Optional engines for the same protocol: participants over NVIDIA FLARE, and the analyst on Dask.

With either engine, bundles and alignments are the same as without. Dask trains models on all rows instead of a sample.
"""
