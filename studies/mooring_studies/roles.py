"""Who is who in every study: participant 0 colludes, participant 1 is the one whose rows are attacked."""

COLLUDER, TARGET = 0, 1
