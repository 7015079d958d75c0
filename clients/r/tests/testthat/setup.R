# A study of four hospitals and an analyst, each of whom runs the command. Where MOORING names the command, it has to be there.
study_folder <- tempfile("study")
is_named <- nzchar(Sys.getenv("MOORING"))
patients <- if (is_named || nzchar(Sys.which("mooring"))) play_study(study_folder)
analyst <- file.path(study_folder, "analyst")
withr::defer(unlink(study_folder, recursive = TRUE), teardown_env())
