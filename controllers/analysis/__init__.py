"""Analysis of what nodes exported: one SQL text a question, over the tables of `api/lake.py`, by DuckDB or Spark."""
