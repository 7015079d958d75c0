"""What travels in a study of secure sums: settings, sealed bundles, confirmations, closing lists, combined shares."""
