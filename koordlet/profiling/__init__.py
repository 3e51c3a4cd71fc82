"""Profiles for training and capacity analysis: what each container looked like, as Parquet files of bounded size.

Off by default. The agent gathers rows; a child process that lives for a moment turns each segment into Parquet, since
pyarrow would add more memory to the agent (some 85 MB) than all of its measuring needs. `koord-detector train` reads
the files, and so does whatever else reads Parquet.
"""
