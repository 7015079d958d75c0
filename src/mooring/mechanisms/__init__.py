"""The methods as data, the kernel that perturbs, anchors, projections, noise and privacy accounting."""
