"""A pure library that turns windows of lost seconds into verdicts: a window and a time in, values out, no I/O."""
