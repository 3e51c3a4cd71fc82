"""A pure library that turns windows of lost seconds into verdicts."""
