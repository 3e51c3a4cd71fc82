"""One module, one symptom: a way to lose time, what measures it, and where its culprit is to be found."""
