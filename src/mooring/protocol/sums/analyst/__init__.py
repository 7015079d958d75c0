"""What the analyst of a study of secure sums does: it closes the list, opens the total, trains, and reads answers."""
