"""Cohorts from OMOP tables in a DuckDB file: the query, what its text says of its columns, and its rows."""
