"""The window of a network whose input is bounded, while a text grows."""


def window_start(length: int, context: int) -> int:
    """The start of the context of the token after `length` tokens: 0 while all fit, then in steps of half a context."""
    half = max(1, context // 2)
    return 0 if length <= context else -((context - length) // half) * half
