"""Profiles for training and capacity analysis: what each container looked like, as Parquet files of bounded size.

Off by default. The agent gathers rows; a child process that lives for a moment turns each segment into Parquet, since
pyarrow would add some 85 MB to the 60 MB that the agent has resident. `koord-detector train` reads
the files, and so does whatever else reads Parquet.
"""
