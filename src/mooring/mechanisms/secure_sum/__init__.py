"""One upload of sums: secret sharing, exact noise, public feature maps."""
