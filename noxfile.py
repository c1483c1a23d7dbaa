"""One session for each habit: `nox -s tests`, `slow`, `lint`, `docs`, `audit`, `bench`.

Each session makes an environment of its own, with uv where there is one. `nox --no-venv -s tests` uses the environment
that is active instead, and installs nothing.
"""

import nox

nox.needs_version = ">=2024.4.15"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["lint", "tests", "docs"]


def install(session: nox.Session, *extras: str) -> None:
    """Install the checkout, library and papers, with `extras`, unless the session uses the active environment."""
    if session.venv_backend != "none":
        session.install("--editable", f".[{','.join(extras)}]" if extras else ".", "--editable", "./papers")


@nox.session
def tests(session: nox.Session) -> None:
    """Every test that is not slow."""
    install(session, "dev")
    session.run("pytest", "-n", "2", *session.posargs)


@nox.session
def slow(session: nox.Session) -> None:
    """The statistical and the long tests."""
    install(session, "dev")
    session.run("pytest", "-n", "2", "-m", "slow", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Style, types and the direction of imports."""
    install(session, "dev")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("pyright")
    session.run("lint-imports")


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation, warnings being errors."""
    install(session, "docs")
    arguments = ("-j", "4", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html")
    session.run("sphinx-build", *arguments, *session.posargs)
    session.run("python", "tools/check_site.py", "docs/_build/html")


@nox.session
def audit(session: nox.Session) -> None:
    """What is installed against the known vulnerabilities; needs the network, and fails without it."""
    install(session, "dev", "docs", "netcdf")
    session.install("pip-audit")
    session.run("python", "tools/audit.py", "--required", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """The library against the bare engine and against loops by hand; `nox -s bench -- --quick` for a minute of it."""
    install(session, "cluster")
    session.run("python", "-m", "benchmarks", *session.posargs)
