"""Files as rows to study, and rows dealt to participants."""

from mooring.datasets.aside import set_aside
from mooring.datasets.dealing import Deal, deal
from mooring.datasets.images import read_images
from mooring.datasets.reading import read_records
from mooring.datasets.records import Records
from mooring.datasets.tables import read_table

__all__ = ["Deal", "Records", "deal", "read_images", "read_records", "read_table", "set_aside"]
