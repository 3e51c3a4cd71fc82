"""The outcome of a command: an errno for the caller, a line for info/last_cmd_status."""


class CommandError(Exception):
    """A refused command. `message` (without newline) goes to info/last_cmd_status; None leaves it at "ok"."""

    def __init__(self, errno: int, message: str | None = None) -> None:
        super().__init__(errno, message)
        self.errno = errno
        self.message = message
