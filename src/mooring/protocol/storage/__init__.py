"""The vault, the ledger and fingerprints of rows."""
