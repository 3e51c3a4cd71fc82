"""`koordlet snapshot`: one measurement as a document and as a table."""
