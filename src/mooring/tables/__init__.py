"""Files as rows to study, and rows dealt to participants."""

from mooring.tables.holdout import hold_out
from mooring.tables.images.reader import read_images
from mooring.tables.partitioning import Partition, partition
from mooring.tables.reader import read_records
from mooring.tables.records import Records
from mooring.tables.table_records import read_table

__all__ = ["Partition", "Records", "hold_out", "partition", "read_images", "read_records", "read_table"]
