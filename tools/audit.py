"""What is installed against the known vulnerabilities; exit code 1 if there is one.

python tools/audit.py              say so, and go on, if the service cannot be reached
python tools/audit.py --required   fail if it cannot be reached
python tools/audit.py --path SITE_PACKAGES    of another environment than this one
"""

import argparse
import json
import subprocess
import sys
import urllib.error
import urllib.request

SERVICE = "https://pypi.org/pypi/pip/25.0/json"  # what pip-audit asks for each package: its entry has `vulnerabilities`


def is_reachable(address: str) -> bool:
    """Whether the service answers, and says something of vulnerabilities; a mirror of packages does not."""
    try:
        with urllib.request.urlopen(address, timeout=20) as answer:
            return "vulnerabilities" in json.load(answer)
    except (urllib.error.URLError, OSError, ValueError) as error:
        print(f"{address}: {error}")
        return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--required", action="store_true")
    parser.add_argument("--path")
    options = parser.parse_args()
    if not is_reachable(SERVICE):
        print("NOT AUDITED: the service that knows of vulnerabilities cannot be reached from here.")
        return 1 if options.required else 0
    command = [sys.executable, "-m", "pip_audit", "--skip-editable", "--progress-spinner", "off"]
    return subprocess.run([*command, *(["--path", options.path] if options.path else [])], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
