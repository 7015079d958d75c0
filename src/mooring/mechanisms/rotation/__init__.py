"""The paper's mechanism: rows under a secret rigid map. Methods as data, one kernel, anchors and projections."""
