"""The analyst on Dask: bundles are verified and mapped where they are, and the matrix is written and learnt in pieces."""

from mooring.engines.dask.analyst import DaskEngine
from mooring.engines.dask.cluster import Tls, connect
from mooring.engines.dask.learners import train_on_dask

__all__ = ["DaskEngine", "Tls", "connect", "train_on_dask"]
