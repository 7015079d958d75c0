"""The paper's mechanism, in which rows leave under a secret rigid map: methods, kernel, anchors and projections."""
