PALETTE <- c("#1b6ca8", "#c8553d", "#2f8f5b", "#7d5ba6", "#8a6d1d", "#4d4d4d")

# Points with their intervals, one line each, from top to bottom.
draw_forest <- function(label, estimate, low, high, reference = NULL, log = "", xlab = "", main = "", ...) {
  n <- length(label)
  if (n == 0) stop("There is nothing to draw.", call. = FALSE)
  before <- par(mar = c(4.5, min(20, 2 + 0.5 * max(nchar(label))), 3, 1.5))
  on.exit(par(before))
  rows <- rev(seq_len(n))
  known <- c(estimate, low, high, reference)
  limits <- range(known[is.finite(known) & (log != "x" | known > 0)])
  plot(NA, xlim = limits, ylim = c(0.5, n + 0.5), log = log, yaxt = "n", ylab = "", xlab = xlab, main = main, ...)
  if (!is.null(reference)) abline(v = reference, lty = 3)
  axis(2, at = rows, labels = label, las = 1, tick = FALSE)
  segments(low, rows, high, rows, col = PALETTE[1], lwd = 2)
  points(estimate, rows, pch = 15, col = PALETTE[1])
}

plot.mooring_survival <- function(x, xlab = "time", ylab = "survival", main = "", ...) {
  frame <- as.data.frame(x)
  groups <- unique(frame$group)
  colours <- setNames(rep_len(PALETTE, length(groups)), groups)
  before <- par(mar = c(5.5 + length(groups), 7, 3, 1.5))
  on.exit(par(before))
  plot(NA, xlim = range(0, frame$end), ylim = c(0, 1), xlab = "", ylab = ylab, main = main, las = 1, ...)
  mtext(xlab, side = 1, line = 2.2)
  mtext("at risk", side = 1, line = 3.4, adj = 0, font = 2, cex = 0.8)
  for (group in groups) {
    curve <- frame[frame$group == group & is.finite(frame$survival), ]
    times <- c(min(frame$start), curve$end)
    step <- function(values) {
      list(x = rep(times, each = 2)[-1], y = rep(c(1, values), each = 2)[-2 * length(times)])
    }
    upper <- step(curve$high)
    lower <- step(curve$low)
    known <- is.finite(upper$y) & is.finite(lower$y)
    polygon(c(upper$x[known], rev(lower$x[known])), c(upper$y[known], rev(lower$y[known])),
            col = adjustcolor(colours[[group]], 0.15), border = NA)
    lines(step(curve$survival), col = colours[[group]], lwd = 2)
    line <- 4.2 + match(group, groups) - 1
    mtext(format(round(curve$at_risk)), side = 1, line = line, at = curve$start, col = colours[[group]], cex = 0.8)
    mtext(group, side = 1, line = line, adj = -0.12, col = colours[[group]], cex = 0.8)
  }
  if (length(groups) > 1) legend("bottomleft", legend = groups, col = colours, lwd = 2, bty = "n")
  invisible(x)
}
