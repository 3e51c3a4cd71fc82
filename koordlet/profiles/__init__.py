"""Profiles for training and capacity analysis: features of each container over time, in Parquet files of bounded size.

Off by default. The agent gathers rows; a short-lived child process writes each segment as Parquet, since pyarrow would
add some 85 MB to the 60 MB that the agent has resident. `koord-detector train` reads the files, as does any other
reader of Parquet.
"""
