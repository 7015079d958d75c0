# The patients of `esoph`, a case-control study of cancer of the oesophagus, split at random into four invented hospitals.
list_patients <- function() {
  cells <- datasets::esoph
  columns <- lapply(cells[c("agegp", "alcgp", "tobgp")], as.character)
  lines <- function(count, case) data.frame(lapply(columns, rep, times = count), case = rep(case, sum(count)))
  patients <- rbind(lines(cells$ncases, "yes"), lines(cells$ncontrols, "no"))
  names(patients) <- c("age", "alcohol", "tobacco", "case")
  patients$drinks <- ifelse(patients$alcohol %in% c("80-119", "120+"), "heavily", "less")
  patients$smokes <- ifelse(patients$tobacco %in% c("20-29", "30+"), "heavily", "less")
  # Invented, since the study followed nobody.
  patients$followed <- 6 + 12 * (seq_len(nrow(patients)) %% 5)
  patients$months <- 1 + (7 * seq_len(nrow(patients))) %% 59
  patients$died <- ifelse(seq_len(nrow(patients)) %% 3 == 0, "yes", "no")
  patients[c("drinks", "smokes", "followed", "months", "died", "case")]
}

hospitals <- c("north", "east", "south", "west")

# Plays the whole study in folders below `folder`, each member by `mooring_run` alone, and returns the patients.
play_study <- function(folder) {
  patients <- list_patients()
  set.seed(1)
  hospital <- sample(hospitals, nrow(patients), replace = TRUE)
  place <- file.path(folder, "place")
  for (name in c(hospitals, "analyst", "place")) dir.create(file.path(folder, name), recursive = TRUE)
  for (name in hospitals) {
    utils::write.csv(patients[hospital == name, ], file.path(folder, name, "patients.csv"), row.names = FALSE, quote = FALSE)
  }
  analyst <- file.path(folder, "analyst")
  writeLines(paste(names(patients), collapse = ","), file.path(analyst, "columns.csv"))
  mooring(
    "study", "init", "columns.csv", "--name", "oesophagus", "--label", "case", "--classes", "no,yes",
    "--category", "drinks=less,heavily", "--category", "smokes=less,heavily", "--range", "followed=0:60",
    "--mechanism", "secure-sum", "--epsilon", "8", "--question", "tables", "--question", "regression",
    "--question", "survival", "--survival-time", "months", "--survival-event", "died", "--survival-occurred", "yes",
    "--category", "died=no,yes", "--range", "months=0:60", "--survival-edge", "0", "--survival-edge", "20", "--survival-edge", "40",
    "--survival-edge", "60",
    folder = analyst
  )
  run_all(folder, place)
  patients
}

# Runs every member in turn until all are done. Fingerprints are accepted as the files state them, which only a test may do.
run_all <- function(folder, place, rounds = 8) {
  accept <- NULL
  for (round in seq_len(rounds)) {
    turns <- lapply(c(hospitals, "analyst"), function(name) {
      own <- file.path(folder, name)
      if (name == "analyst") {
        mooring_run(place, analyst = TRUE, accept = accept, once = TRUE, folder = own)
      } else {
        mooring_run(place, file.path(own, "patients.csv"), name = name, accept = accept, share = "yes", once = TRUE, folder = own)
      }
    })
    for (turn in turns) accept <- c(accept, list_fingerprints(turn$questions))
    if (all(vapply(turns, function(turn) isTRUE(turn$is_finished), TRUE))) return(invisible())
  }
  stop("The study did not end.")
}
