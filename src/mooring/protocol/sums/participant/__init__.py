"""What a participant of a study of secure sums does: it adds up its rows, checks them, and writes its contribution."""
