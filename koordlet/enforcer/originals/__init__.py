"""What a journalled file holds now, beside its original and our values: restored at the end, set again in between."""
