"""The protocol between real organisations: separate roles, separate folders, one upload each, no secret sent unsealed."""
