"""How values of the wrong type are refused."""

import subprocess
import sys


def assert_refused(setup: str, cases: dict[str, str]) -> None:
    """Each call, evaluated after the setup, raises InvalidInput with its words.

    The checked annotations of the test run would catch such values first, so this runs without them, on its own.
    """
    code = f"""
{setup}
for call, message in {cases!r}.items():
    try:
        eval(call)
    except dimfree.InvalidInput as error:
        assert message in str(error), (call, str(error))
    else:
        raise AssertionError(call + " was accepted")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
