"""A participant: join, check, share, predict."""
