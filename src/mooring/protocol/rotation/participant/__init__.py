"""What a participant of a study of rotation does: it attacks its own rows before anything leaves, and writes its upload."""
