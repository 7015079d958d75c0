# Taking part: check, run and status.

mooring_check <- function(data, study = "study.toml", vault = "vault", ignore = NULL, folder = ".", ...) {
  answer <- call_mooring(
    c("check", locate(data), as_options(study = study, vault = vault, ignore = ignore, ...)),
    folder, allowed = c(0L, 3L, 4L), echo = interactive()
  )
  structure(answer, class = "mooring_check")
}

print.mooring_check <- function(x, ...) {
  decision <- x$decision
  if (!is.null(decision)) cat(decision$question, " ", decision$answer, ".\n", sep = "")
  if (!is.null(x$verdict)) say(x$verdict)
  for (warning in x$warnings) say(paste("Note:", warning))
  if (!is.null(x$page)) cat("Page: ", x$page, " (it may show rows; keep it to yourself)\n", sep = "")
  invisible(x)
}

mooring_run <- function(place, table = NULL, analyst = FALSE, helper = FALSE, name = NULL, accept = NULL,
                        share = c("ask", "yes", "no", "if-advised"), once = FALSE, folder = ".", wait = 5, ...) {
  share <- match.arg(share)
  asks <- interactive() && !once
  options <- as_options(
    place = locate(place), table = locate(table), analyst = analyst, helper = helper, name = name, once = TRUE, ...
  )
  repeat {
    sharing <- if (!analyst && !helper) share
    turn <- call_mooring(
      c("run", options, as_options(accept = accept, share = sharing)), folder, allowed = c(0L, 3L), echo = TRUE
    )
    class(turn) <- "mooring_run"
    questions <- turn$questions
    if (once || isTRUE(turn$is_finished) || (NROW(questions) > 0 && !asks)) return(turn)
    for (k in seq_len(NROW(questions))) {
      if (questions$kind[k] == "reading") return(turn) # stays open: mooring("match", ...) writes how the table is read
      if (!ask_person(questions, k)) return(turn)
      if (questions$kind[k] == "share") share <- "yes" else accept <- c(accept, list_fingerprints(questions[k, ]))
    }
    if (NROW(questions) == 0) Sys.sleep(wait)
  }
}

# The fingerprints that questions show, which a person compares with what others say by telephone.
list_fingerprints <- function(questions) {
  unlist(lapply(seq_len(NROW(questions)), function(k) {
    pairs <- questions$fingerprints[[k]]
    if (NROW(pairs)) pairs[, 2]
  }))
}

# Shows what a person should know before answering, and returns whether the answer is yes.
ask_person <- function(questions, k) {
  for (pairs in list(questions$facts[[k]], questions$fingerprints[[k]])) {
    for (line in seq_len(NROW(pairs))) say(paste0(pairs[line, 1], ": ", pairs[line, 2]))
  }
  if (nzchar(questions$advice[k])) say(paste("Advice:", questions$advice[k]))
  tolower(trimws(readline(paste(questions$words[k], "[y/N] ")))) %in% c("y", "yes")
}

print.mooring_run <- function(x, ...) {
  for (event in x$events$words) say(event)
  waits <- x$waits
  for (k in seq_len(NROW(waits))) {
    whom <- if (length(waits$members[[k]])) waits$members[[k]] else waits$lacks[[k]]
    say(sprintf("'%s' waits for %s.", waits$title[k], paste(whom, collapse = ", ")))
  }
  for (question in x$questions$words) say(paste("Open question:", question))
  if (isTRUE(x$is_finished)) say("Everything is done.")
  invisible(x)
}

mooring_status <- function(place = NULL, folder = ".", ...) {
  structure(call_mooring(c("status", as_options(place = locate(place), ...)), folder), class = "mooring_run")
}

# The command runs in `folder`, while paths are meant from where R is. URLs, and paths below `folder`, stay as they are.
locate <- function(path) if (is.null(path) || !file.exists(path)) path else normalizePath(path)
