"""Sources that move, looked at anew: what each is now becomes its pin in sources.lock.yaml (`lexmill refresh`)."""
