"""The vault, the ledger and atomic files."""
