"""The paper's convolutional networks, trained for many data sets at once."""

from mooring_studies.networks.convolution import DIGITS, FACES, Architecture
from mooring_studies.networks.ensemble import Ensemble, Schedule, train_ensemble

__all__ = ["DIGITS", "FACES", "Architecture", "Ensemble", "Schedule", "train_ensemble"]
