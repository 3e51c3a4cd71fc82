"""The judge: rules over symptoms, from frames to verdicts."""
