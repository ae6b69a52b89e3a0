"""`python -m webhook`: the same as the command `drainproof`."""

from webhook.cli import main

if __name__ == "__main__":
    main()
