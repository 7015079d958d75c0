"""What a combiner of a study of secure sums does: it tests its shares, and adds up those of the closing list."""
