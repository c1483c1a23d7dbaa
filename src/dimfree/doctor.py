"""What is installed here, whether it works, and what to do where it does not: the findings of `dimfree doctor`.

Nothing heavy is imported before it is needed, as for the command line.
"""

import os
import platform
import shutil
from pathlib import Path
from typing import Any

from . import extras
from .compiled import SWITCH

# Extras by what they are for; what each consists of is said in the metadata of the package.
EXTRAS = {
    "netcdf": "write NetCDF files (--output run.nc)",
    "cluster": "studies on many cores or a cluster, Zarr files",
    "exact": "equations in symbols (dimfree equations)",
    "data": "spectra of data in more than 4,096 dimensions (dimfree.Spectrum.from_data)",
    "app": "the explorer in the browser (dimfree explore)",
}
_PACKAGES = ("jax", "jaxlib", "diffrax", "equinox", "optimistix", "numpy", "scipy", "xarray", "matplotlib")
_CACHE = "JAX_COMPILATION_CACHE_DIR"


def examine() -> dict[str, Any]:
    """Versions, devices, precision, cache, extras, and every problem with its remedy."""
    problems: list[dict[str, str]] = []
    versions = {name: extras.version(name) for name in ("dimfree", *_PACKAGES)}
    for name in extras.absent(_PACKAGES):
        problems.append({"what": f"{name} is not installed.", "remedy": f"pip install {name}"})
    devices, float64 = _examine_jax(problems)
    cache = _examine_cache(problems)
    return {
        "ok": not problems,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "versions": versions,
        "devices": devices,
        "float64": float64,
        "cache": cache,
        "extras": _extras(),
        "problems": problems,
    }


def _examine_jax(problems: list[dict[str, str]]) -> tuple[list[str], bool | None]:
    try:
        import jax

        float64 = str(jax.numpy.zeros(()).dtype) == "float64"
        devices = [f"{device.platform}: {device.device_kind}" for device in jax.devices()]
    except Exception as error:  # whatever keeps JAX from working is what the user came to hear
        first_line = (str(error).strip() or repr(error)).splitlines()[0]
        problems.append(
            {
                "what": f"JAX does not work here: {first_line}",
                "remedy": "Unset JAX_PLATFORMS, or reinstall JAX for this machine: pip install --upgrade jax",
            }
        )
        return [], None
    if not float64:
        set_to = os.environ.get("JAX_ENABLE_X64")
        problems.append(
            {
                "what": f"JAX computes in single precision (JAX_ENABLE_X64={set_to}), too coarse to solve limits.",
                "remedy": "Unset JAX_ENABLE_X64, or set it to 1.",
            }
        )
    if shutil.which("nvidia-smi") and all(device.startswith("cpu") for device in devices):
        problems.append(
            {
                "what": "There is an NVIDIA driver, but JAX uses only the CPU.",
                "remedy": 'For the GPU: pip install --upgrade "jax[cuda13]", or as JAX\'s installation page says.',
            }
        )
    return devices, float64


def _examine_cache(problems: list[dict[str, str]]) -> dict[str, Any]:
    """Where compiled programs are kept from one process to the next."""
    directory = os.environ.get(_CACHE) or None
    if directory is None:
        advice = f"Programs are compiled again in every process; to keep them: export {SWITCH}=1"
        return {"directory": None, "megabytes": None, "advice": advice}
    path = Path(directory).expanduser()
    nearest = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK)):
        problems.append(
            {
                "what": f"{_CACHE}={directory} was given, but nothing can be written there.",
                "remedy": f"Make the directory writable, or set {_CACHE} to another one.",
            }
        )
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 1e6 if path.is_dir() else 0.0
    return {"directory": directory, "megabytes": round(size, 1), "advice": None}


def _extras() -> dict[str, dict[str, Any]]:
    """What is there of each extra, from what the package says of itself."""
    found = {}
    for name, use in EXTRAS.items():
        packages = extras.packages(name)
        if not packages:
            continue  # an extra of another version
        present = not extras.absent(packages)
        found[name] = {"use": use, "present": present, "remedy": None if present else extras.install(name)}
    return found


def print_findings(report: dict[str, Any]) -> None:
    """The findings as a table, then what is wrong, then what to do about it."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None)

    def row(name: str, words: str, style: str = "") -> None:
        table.add_row(Text(name), Text(words, style=style))

    row("python", f"{report['python']} on {report['platform']}, {report['cores']} cores")
    for name, version in report["versions"].items():
        row(name, version or "not installed", "" if version else "red")
    row("devices", ", ".join(report["devices"]) or "none", "" if report["devices"] else "red")
    row("float64", {True: "on", False: "off", None: "unknown"}[report["float64"]])
    cache = report["cache"]
    row("cache", cache["advice"] or f"{cache['directory']}, {cache['megabytes']} MB")
    for name, extra in report["extras"].items():
        state = "present" if extra["present"] else "absent"
        row(f"extra {name}", f"{state}: {extra['use']}" + ("" if extra["present"] else f"; {extra['remedy']}"))
    console = Console()
    console.print(table)
    for problem in report["problems"]:
        console.print(Text(f"\n{problem['what']}", style="red"))
        console.print(Text(f"  {problem['remedy']}"))
    if report["ok"]:
        console.print(Text("\nAll is well. A first look: dimfree solve --sphere --alpha 40 --simulate 16"))
