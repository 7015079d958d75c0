"""Images from folders, archives, IDX and Parquet files."""
