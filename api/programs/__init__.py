"""What programs share before anything of theirs runs: missing extras, and their heap."""
