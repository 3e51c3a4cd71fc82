"""Pages of our programs: escaped markup, one document with one style and one script, and who may read it. Pure."""
