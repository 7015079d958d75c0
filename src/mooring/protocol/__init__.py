"""The protocol between real organisations: separate roles, separate folders, one upload each, nothing secret in transit."""
