"""HTTP/1.1 connections for writes, apart from the general client: one at a time, or many without a thread for each."""
