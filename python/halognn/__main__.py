"""python3 -m halognn FORMAT IN OUT [flags of `halognn import`]: a published graph into a DATASET."""

import sys

from .formats import FORMATS, FormatError, read
from .program import HalognnError, call, stored


def main(words):
    if len(words) < 3 or words[0] not in FORMATS:
        print(f"usage: python3 -m halognn {'|'.join(FORMATS)} IN OUT [flags of `halognn import`]",
              file=sys.stderr)
        return 2
    form, path, out, *flags = words
    try:
        split = next((b.removeprefix("--split=") for a, b in zip(["", *flags], flags)
                      if a == "--split" or b.startswith("--split=")), "")
        with stored(read(form, path, split)) as arguments:
            if {"--undirected", "--directed"} & set(flags):
                arguments = [a for a in arguments if a not in ("--undirected", "--directed")]
            print(call(["import", *arguments, "--out", out, *flags]), end="")
    except (FormatError, HalognnError, OSError, ModuleNotFoundError) as error:
        print(f"halognn: {error}", file=sys.stderr)
        return getattr(error, "code", 3)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
