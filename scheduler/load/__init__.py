"""Usage of nodes, measured and expected once the pods just placed there are up; limits and scores over columns."""
