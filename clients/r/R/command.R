# The command that is called: the option `mooring.command`, the environment variable MOORING, or `mooring` on the PATH.
mooring_command <- function() {
  command <- getOption("mooring.command", Sys.getenv("MOORING", unset = "mooring"))
  found <- Sys.which(command)
  if (!nzchar(found)) {
    stop("The command '", command, "' was not found. Install the Python package mooring, or set ",
         "options(mooring.command = \"/path/to/mooring\").", call. = FALSE)
  }
  unname(found)
}

# Runs the command and returns what it prints as JSON. An error of the command becomes an R condition of class
# 'mooring_error' with the fields that the command states. Exit codes in `allowed` are results, not errors.
call_mooring <- function(arguments, folder = ".", allowed = 0L, echo = FALSE) {
  result <- processx::run(
    mooring_command(), c(arguments, "--format", "json"),
    wd = folder, error_on_status = FALSE, encoding = "UTF-8",
    stderr_callback = if (echo) function(text, process) message(text, appendLF = FALSE),
    env = c("current", NO_COLOR = "1", PYTHONUTF8 = "1", LD_LIBRARY_PATH = own_library_path())
  )
  answer <- tryCatch(
    jsonlite::fromJSON(result$stdout, simplifyVector = TRUE, simplifyDataFrame = TRUE),
    error = function(problem) NULL
  )
  if (result$status %in% allowed && is.list(answer) && is.null(answer$error)) {
    attr(answer, "exit_code") <- result$status
    return(answer)
  }
  fields <- if (is.list(answer$error)) answer$error else list(kind = "UsageError", message = trimws(result$stderr))
  stop(structure(
    class = c("mooring_error", "error", "condition"),
    c(list(message = fields$message, call = NULL, exit_code = result$status), fields[setdiff(names(fields), "message")])
  ))
}

# The library path without the folders that R puts before it: another program would load libraries of other versions there.
own_library_path <- function() {
  path <- Sys.getenv("LD_LIBRARY_PATH")
  settings <- file.path(R.home("etc"), "ldpaths")
  if (!nzchar(path) || !file.exists(settings)) return(path)
  added <- processx::run(
    "sh", c("-c", ". \"$R_HOME/etc/ldpaths\"; printf %s \"$LD_LIBRARY_PATH\""),
    env = c("current", LD_LIBRARY_PATH = "", R_HOME = R.home())
  )$stdout
  while (nzchar(added) && startsWith(path, added)) { # an R that was started by R has them twice
    path <- sub("^:", "", substring(path, nchar(added) + 1))
  }
  path
}

# Any other command, such as mooring("study", "show"): what it prints as JSON, as a list. Exit code 3 says that it was done.
mooring <- function(..., folder = ".") call_mooring(c(...), folder, allowed = c(0L, 3L))

# Options of the command: NULL and "" are left out, a vector repeats the option, TRUE is a flag.
as_options <- function(...) {
  given <- list(...)
  unlist(lapply(names(given), function(name) {
    value <- given[[name]]
    option <- paste0("--", gsub("_", "-", name))
    if (is.null(value) || identical(value, FALSE) || identical(value, "")) return(NULL)
    if (isTRUE(value)) return(option)
    as.vector(rbind(option, as.character(value)))
  }))
}

# An answer as a data frame that carries what the command says about all of its lines.
as_answer <- function(frame, answer, class) {
  known <- setdiff(names(answer), c("statistics", "terms", "ratios", "points"))
  structure(as.data.frame(frame), class = c(class, "data.frame"), answer = answer[known])
}

about <- function(x) attr(x, "answer")

# What every answer says above its table: rows, guarantee, and what intervals include.
describe_source <- function(x) {
  source <- about(x)$source
  rows <- format(round(source$rows), big.mark = ",")
  error <- if (isTRUE(source$rows_error > 0)) sprintf(" (\u00b1 %s by noise)", format(signif(1.96 * source$rows_error, 2))) else ""
  guarantee <- if (is.null(source$epsilon)) {
    "no noise, which promises nothing"
  } else {
    sprintf("\u03b5 = %s, \u03b4 = %s for one %s", format(source$epsilon), format(source$delta), source$unit)
  }
  c(sprintf("About %s rows%s; %s.", rows, error, guarantee), if (nzchar(source$caveat)) source$caveat, about(x)$included)
}

say <- function(sentences) for (sentence in sentences) cat(strwrap(sentence), sep = "\n")

write_p <- function(p) ifelse(is.na(p), "", ifelse(p < 0.001, "<0.001", formatC(p, format = "f", digits = 3)))

write_number <- function(x, digits = 3) ifelse(is.na(x), "\u2013", formatC(x, format = "fg", digits = digits, flag = "#"))

write_interval <- function(low, high, digits = 3) {
  ifelse(is.na(low) | is.na(high), "\u2013", paste(write_number(low, digits), "to", write_number(high, digits)))
}

as_formula_text <- function(formula) {
  if (inherits(formula, "formula")) paste(deparse(formula, width.cutoff = 500L), collapse = " ") else as.character(formula)
}
