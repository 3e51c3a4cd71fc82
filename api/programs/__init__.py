"""What programs share before they import anything of theirs."""
