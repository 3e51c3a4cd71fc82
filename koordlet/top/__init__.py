"""`koordlet top`: the live view."""
