"""`python -m stallguard` is `stallguard`."""

from stallguard.cli import main

if __name__ == "__main__":
    main()
