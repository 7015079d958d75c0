"""Messages between roles, and readers that bound what they read; nothing here depends on a sender's role."""
