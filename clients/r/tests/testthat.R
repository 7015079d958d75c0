library(testthat)
library(mooring)

test_check("mooring")
