"""`python -m kafkalog`: the command line, where the `kafkalog` script is not on the path."""

from kafkalog.cli.main import main

if __name__ == "__main__":
    main()
