"""The command line, as a user calls it."""

from typer.testing import CliRunner, Result

from dimfree.cli import app


def call(*arguments: str) -> Result:
    """What a command says, and its exit code; an error that it does not turn into words fails the test."""
    result = CliRunner().invoke(app, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    return result
