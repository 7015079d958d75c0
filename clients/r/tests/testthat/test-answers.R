require_command <- function() if (is.null(patients)) skip("the command mooring is not installed")

test_that("a Table 1 covers the counts of the patients of all hospitals", {
  require_command()
  table <- mooring_describe(by = "case", folder = analyst)
  shares <- table[table$statistic == "share" & table$column == "drinks" & table$level == "heavily", ]
  for (group in c("no", "yes")) {
    line <- shares[shares$group == group, ]
    truth <- mean(patients$drinks[patients$case == group] == "heavily")
    expect_true(line$low <= truth && truth <= line$high)
  }
  rows <- table[table$statistic == "count" & table$column == "" & table$group == "all", ]
  expect_lt(abs(rows$estimate - nrow(patients)), 3 * (rows$high - rows$low))
  expect_output(print(table), "drinks: heavily")
  expect_s3_class(table, "data.frame")
})

test_that("odds ratios point where those of the pooled patients do, and name their reference", {
  require_command()
  ratios <- mooring_regress(case ~ drinks, logistic = TRUE, folder = analyst)
  pooled <- stats::glm((case == "yes") ~ (drinks == "heavily"), data = patients, family = stats::binomial())
  line <- ratios[ratios$term == "drinks", ]
  expect_identical(line$reference, "less")
  expect_true(line$low <= exp(stats::coef(pooled)[[2]]) && exp(stats::coef(pooled)[[2]]) <= line$high)
  expect_output(print(ratios), "odds ratio")
})

test_that("a linear regression takes a formula or its text", {
  require_command()
  given <- mooring_regress(followed ~ drinks + smokes, folder = analyst)
  written <- mooring_regress("followed ~ drinks + smokes", folder = analyst)
  expect_equal(given$estimate, written$estimate)
  expect_identical(given$term, c("Intercept", "drinks", "smokes"))
})

test_that("pictures are drawn for every answer", {
  require_command()
  grDevices::pdf(NULL)
  withr::defer(grDevices::dev.off())
  expect_silent(plot(mooring_describe(by = "case", folder = analyst)))
  expect_silent(plot(mooring_regress(case ~ drinks + smokes, logistic = TRUE, folder = analyst)))
  expect_silent(plot(mooring_survival(by = "drinks", folder = analyst)))
})

test_that("survival is a curve by group with numbers at risk, medians and a test", {
  require_command()
  curves <- mooring_survival(by = "drinks", folder = analyst)
  expect_setequal(curves$group, c("less", "heavily"))
  expect_true(all(diff(curves$survival[curves$group == "less"]) <= 0))
  expect_output(print(curves), "Log-rank test")
})

test_that("an error of the command is a condition with its fields, and nothing is lost", {
  require_command()
  problem <- expect_error(mooring_regress(case ~ height, folder = analyst), class = "mooring_error")
  expect_identical(problem$exit_code, 2L)
  expect_error(mooring_describe(folder = tempdir()), class = "mooring_error")
})

test_that("everybody's steps are done, and status says so without doing anything", {
  require_command()
  north <- file.path(study_folder, "north")
  expect_true(mooring_status(file.path(study_folder, "place"), folder = north)$is_finished)
})
