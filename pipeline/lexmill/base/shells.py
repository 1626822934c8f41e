"""The programs that run a command line for another program."""

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "fish", "ksh", "ash", "busybox"})
