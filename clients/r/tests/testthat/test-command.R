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

test_that("a command that left something out answers, and one that was refused is a condition", {
  folder <- withr::local_tempdir()
  writeLines("age,ill", file.path(folder, "columns.csv"))
  draft <- c("study", "init", "columns.csv", "--name", "ward", "--label", "ill", "--classes", "no,yes", "--range", "age=0:120")
  mooring(draft, "--mechanism", "secure-sum", "--epsilon", "1", folder = folder)
  writeLines(c("age,ill", "50,no", "500,yes"), file.path(folder, "patients.csv"))
  answer <- mooring("match", "patients.csv", folder = folder)
  expect_identical(attr(answer, "exit_code"), 3L)
  refused <- expect_error(mooring("match", "nowhere.csv", folder = folder), class = "mooring_error")
  expect_identical(refused$exit_code, 5L)
})
