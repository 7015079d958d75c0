"""Keys and the derivation of secrets."""
