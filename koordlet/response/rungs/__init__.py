"""The rungs of the response, a module for each resource; decides from values alone."""
