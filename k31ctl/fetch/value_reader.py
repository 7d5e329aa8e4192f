"""A process that reads the values of one file: a folder and a file in, one line of JSON out."""

import json
import sys
from pathlib import Path

from k31ctl.fetch.deep import read_values

if __name__ == "__main__":
    folder, file = sys.argv[1:]
    print(json.dumps(read_values(Path(folder), file)))  # noqa: T201  the parent reads it
