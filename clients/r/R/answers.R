# Answers from the total of a study.

mooring_describe <- function(columns = NULL, by = NULL, study = "study.toml", shares = "inbox", folder = ".", ...) {
  answer <- call_mooring(c("describe", columns, as_options(by = by, study = study, shares = shares, ...)), folder)
  as_answer(answer$statistics, answer, "mooring_description")
}

print.mooring_description <- function(x, ...) {
  say(describe_source(x))
  print(as_table_1(x), right = FALSE, row.names = FALSE)
  for (note in about(x)$notes) say(paste("Note:", note))
  invisible(x)
}

# One line a column or level, one column a group: n (%) of levels, mean (SD) of numbers.
as_table_1 <- function(x) {
  frame <- as.data.frame(x)
  groups <- about(x)$groups
  keys <- unique(frame[frame$statistic %in% c("count", "share", "mean"), c("column", "level")])
  cell <- function(column, level, group) {
    lines <- frame[frame$column == column & frame$level == level & frame$group == group, ]
    value <- function(statistic, field = "estimate") {
      value <- lines[[field]][lines$statistic == statistic]
      if (length(value)) value[[1]] else NA_real_
    }
    if (!is.na(value("mean"))) return(sprintf("%s (%s)", write_number(value("mean")), write_number(value("sd"))))
    count <- formatC(round(value("count")), big.mark = ",", format = "d")
    if (is.na(value("share"))) return(if (is.na(value("count"))) "\u2013" else count)
    sprintf("%s (%s %%)", if (is.na(value("count"))) "\u2013" else count, formatC(100 * value("share"), format = "f", digits = 1))
  }
  cells <- vapply(groups, function(group) {
    vapply(seq_len(nrow(keys)), function(k) cell(keys$column[k], keys$level[k], group), "")
  }, character(nrow(keys)))
  label <- ifelse(keys$column == "", "rows", ifelse(keys$level == "", keys$column, paste0(keys$column, ": ", keys$level)))
  table <- data.frame(label, matrix(cells, nrow = nrow(keys)), stringsAsFactors = FALSE)
  by <- about(x)$by
  names(table) <- c(" ", ifelse(groups == "all" | !nzchar(by), groups, paste(by, "=", groups)))
  table
}

plot.mooring_description <- function(x, main = "Shares with 95 % intervals", ...) {
  frame <- as.data.frame(x)
  shares <- frame[frame$statistic == "share" & is.finite(frame$estimate), ]
  if (nrow(shares) == 0) stop("There are no shares of categories to draw.", call. = FALSE)
  label <- paste0(shares$column, ": ", shares$level)
  if (length(about(x)$groups) > 1) label <- paste0(label, " (", shares$group, ")")
  draw_forest(label, 100 * shares$estimate, 100 * shares$low, 100 * shares$high, xlab = "percent", main = main, ...)
  invisible(x)
}

mooring_regress <- function(formula, logistic = FALSE, study = "study.toml", shares = "inbox", folder = ".", ...) {
  answer <- call_mooring(
    c("regress", as_formula_text(formula), as_options(logistic = logistic, study = study, shares = shares, ...)), folder
  )
  frame <- if (logistic) answer$ratios else answer$terms
  names(frame)[names(frame) == "odds_ratio"] <- "estimate"
  structure(as_answer(frame, answer, "mooring_regression"), logistic = logistic)
}

name_terms <- function(frame) {
  ifelse(frame$level == "", frame$term, paste0(frame$term, ": ", frame$level, " against ", frame$reference))
}

print.mooring_regression <- function(x, ...) {
  say(describe_source(x))
  logistic <- attr(x, "logistic")
  cat(if (logistic) "Odds ratios: " else "Linear regression: ", about(x)$formula, "\n", sep = "")
  frame <- as.data.frame(x)
  table <- data.frame(
    term = name_terms(frame), estimate = write_number(frame$estimate),
    interval = write_interval(frame$low, frame$high), p = write_p(frame$p), stringsAsFactors = FALSE
  )
  names(table) <- c("", if (logistic) "odds ratio" else "coefficient", "95 % interval", "p")
  print(table, right = FALSE, row.names = FALSE)
  for (note in about(x)$notes) say(paste("Note:", note))
  invisible(x)
}

plot.mooring_regression <- function(x, main = NULL, ...) {
  logistic <- attr(x, "logistic")
  frame <- as.data.frame(x)
  frame <- frame[frame$term != "Intercept" & is.finite(frame$estimate), ]
  draw_forest(
    name_terms(frame), frame$estimate, frame$low, frame$high, reference = if (logistic) 1 else 0,
    log = if (logistic) "x" else "", xlab = if (logistic) "odds ratio" else "coefficient",
    main = if (is.null(main)) about(x)$formula else main, ...
  )
  invisible(x)
}

mooring_survival <- function(by = NULL, life_table = FALSE, study = "study.toml", shares = "inbox", folder = ".", ...) {
  answer <- call_mooring(
    c("survival", as_options(by = by, life_table = life_table, study = study, shares = shares, ...)), folder
  )
  as_answer(answer$points, answer, "mooring_survival")
}

print.mooring_survival <- function(x, ...) {
  say(describe_source(x))
  frame <- as.data.frame(x)
  table <- data.frame(
    group = frame$group, interval = paste(frame$start, "to", frame$end), at_risk = round(frame$at_risk),
    events = round(frame$events), survival = write_number(frame$survival),
    interval95 = write_interval(frame$low, frame$high), stringsAsFactors = FALSE
  )
  names(table) <- c("group", "interval", "at risk", "events", "survival", "95 % interval")
  print(table, right = FALSE, row.names = FALSE)
  medians <- about(x)$medians
  for (k in seq_len(NROW(medians))) {
    median <- medians$median[k]
    shown <- if (is.na(median)) {
      if (isTRUE(medians$ended_by_noise[k])) "not known, since the noise ends the curve" else "not reached"
    } else {
      format(median)
    }
    cat("Median survival, ", medians$group[k], ": ", shown, "\n", sep = "")
  }
  test <- about(x)$log_rank
  if (!is.null(test)) {
    cat(sprintf("Log-rank test: \u03c7\u00b2 = %s on %d degrees of freedom, p = %s\n",
                write_number(test$chi_square), as.integer(test$degrees_of_freedom), write_p(test$p)))
  }
  for (note in about(x)$notes) say(paste("Note:", note))
  invisible(x)
}
