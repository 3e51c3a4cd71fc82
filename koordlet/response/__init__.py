"""Response to verdicts: a ladder of actions on the named culprit, each kept only if the victim recovers."""
