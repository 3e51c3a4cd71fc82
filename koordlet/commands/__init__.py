"""What `koordlet` does when it is called, one module a command; what a command needs is imported when it is called."""
