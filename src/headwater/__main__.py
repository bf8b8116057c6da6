"""`python -m headwater` is `headwater`."""

from headwater.commands.cli import main

if __name__ == "__main__":
    main()
