"""What a node really uses, and will use once the pods just placed there are up; limits and scores over columns."""
