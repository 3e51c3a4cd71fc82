"""What a release consists of: wheel, Debian package, bill of materials, sums. `python -m deploy.release --help`."""
