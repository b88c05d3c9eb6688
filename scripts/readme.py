"""Puts `attentiond --help` into README's section on options.  usage: readme.py BINARY"""

import pathlib
import re
import subprocess
import sys

README = pathlib.Path(__file__).resolve().parent.parent / "README.md"
text = subprocess.run([sys.argv[1], "--help"], capture_output=True, text=True, check=True).stdout
head, rest = README.read_text().split("\n## Options\n", 1)
section, tail = rest.split("\n## ", 1)
block = "```\n" + text.rstrip() + "\n```"
section = re.sub(r"```.*?```|^OPTIONS$", lambda _: block, section, count=1, flags=re.S | re.M)
README.write_text(head + "\n## Options\n" + section + "\n## " + tail)
