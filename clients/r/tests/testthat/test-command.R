test_that("a command that is not there is named", {
  withr::local_options(mooring.command = "no-such-command")
  expect_error(mooring_command(), "no-such-command")
})

test_that("options are repeated for several values, and left out where nothing is given", {
  expect_identical(as_options(ignore = c("a", "b"), once = TRUE, name = NULL, life_table = FALSE), c("--ignore", "a", "--ignore", "b", "--once"))
  expect_identical(as_options(data_noise = 0.5), c("--data-noise", "0.5"))
})

test_that("numbers, intervals and p-values read as in an article", {
  expect_identical(write_p(c(0.2, 1e-9, NA)), c("0.200", "<0.001", ""))
  expect_identical(write_interval(c(1, NA), c(2.345, 1)), c("1.00 to 2.35", "\u2013"))
})
