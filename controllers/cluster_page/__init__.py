"""The cluster page: what the nodes of a cluster report, as one HTML document; decides from values alone."""
