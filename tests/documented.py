"""Whether help, manual page, shell completions and pages speak of the options that the tool has.

usage: documented.py TOOL SOURCE
"""

import pathlib
import re
import subprocess
import sys

COMMANDS = ("info", "matmul", "compare", "verify", "bench")
tool, source = sys.argv[1], pathlib.Path(sys.argv[2])
counts = {True: 0, False: 0}


def check(what, right, detail=""):
    counts[bool(right)] += 1
    if not right:
        print(f"failed: {what}: {detail}")


def run(*words):
    return subprocess.run([tool, *words], capture_output=True, text=True, check=False)


def long_options(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text)) - {"--version"}


def section(text, first, end):
    found = re.search(first + r"(.*?)" + end, text, re.DOTALL)
    return found.group(1) if found else ""


manual = (source / "docs/detgemm.1").read_text(encoding="utf-8").replace("\\-", "-")
bash = (source / "tools/completion/detgemm.bash").read_text(encoding="utf-8")
zsh = (source / "tools/completion/_detgemm").read_text(encoding="utf-8")
zsh_shared = {name: long_options(section(zsh, rf"\n{name}=", r"\n")) for name in ("device", "order")}
accepted = {}

for command in COMMANDS:
    code = (source / f"tools/{command}.c").read_text(encoding="utf-8")
    table = re.findall(r'\{"([a-z0-9-]+)", (?:no|required)_argument', code)
    accepted[command] = {"--" + name for name in table}
    in_zsh = section(zsh, rf"\n  {command}\)", ";;")
    shared = {o for name in zsh_shared for o in zsh_shared[name] if f"${name} " in in_zsh}
    documents = {
        "--help": long_options(run(command, "--help").stdout),
        "the manual": long_options(section(manual, rf"\.SS {command}\n", r"\n\.S[SH]"))
        | {"--json", "--help"},
        "bash's completion": long_options(section(bash, rf"\n *{command}\)", ";;")),
        "zsh's completion": long_options(in_zsh) | shared,
    }
    for name, options in documents.items():
        check(f"{command} in {name}", options == accepted[command], options ^ accepted[command])

for page in sorted([*source.glob("*.md"), *source.glob("docs/*.md"), source / "docs/detgemm.1"]):
    text = page.read_text(encoding="utf-8").replace("\\-", "-").replace("\\\n", " ")
    for command, words in re.findall(rf"\bdetgemm ({'|'.join(COMMANDS)})\b([^`\n]*)", text):
        unknown = long_options(words) - accepted[command]
        check(f"{page.name}: detgemm {command}{words}", not unknown, f"no option {unknown}")

check("--version", run("--version").stdout.startswith("detgemm "))
print(f"{counts[True]} passed, {counts[False]} failed, 0 skipped")
sys.exit(counts[False] > 0)
