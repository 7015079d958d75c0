"""What the analyst of a study of rotation does: it aligns uploads, trains on all rows, and hands results back."""
