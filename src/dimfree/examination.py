"""What is installed here, whether it works, and what to do where it does not: the findings of `dimfree doctor`.

Nothing heavy is imported before it is needed, as for the command line.
"""

import importlib.metadata
import importlib.util
import os
import platform
import shutil
from typing import Any

EXTRAS = {
    "netcdf": ("h5netcdf", "h5py"),
    "cluster": (
        "adaptive",
        "cryptography",
        "dask",
        "dask_jobqueue",
        "distributed",
        "psutil",
        "pydantic",
        "zarr",
    ),
    "exact": ("sympy",),
}
_PACKAGES = ("jax", "jaxlib", "diffrax", "equinox", "numpy", "scipy", "xarray")


def missing(extra: str) -> list[str]:
    """The packages of an extra that are not installed."""
    return [name for name in EXTRAS[extra] if importlib.util.find_spec(name) is None]


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def examine() -> dict[str, Any]:
    """Versions, devices, precision, extras, and every problem with its remedy."""
    problems: list[dict[str, str]] = []
    versions = {name: _version(name) for name in ("dimfree", *_PACKAGES)}
    for name, version in versions.items():
        if version is None:
            problems.append({"what": f"{name} is not installed.", "remedy": f"pip install {name}"})
    devices: list[str] = []
    float64 = None
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
    if float64 is False:
        set_to = os.environ.get("JAX_ENABLE_X64")
        problems.append(
            {
                "what": f"JAX computes in single precision (JAX_ENABLE_X64={set_to}), too coarse to solve limits.",
                "remedy": "Unset JAX_ENABLE_X64, or set it to 1.",
            }
        )
    if shutil.which("nvidia-smi") and devices and all(device.startswith("cpu") for device in devices):
        problems.append(
            {
                "what": "There is an NVIDIA driver, but JAX uses the CPU only.",
                "remedy": "Install the JAX build for your GPU, as JAX's installation page says.",
            }
        )
    extras = {
        name: {
            "present": not missing(name),
            "remedy": None if not missing(name) else f"pip install {' '.join(missing(name))}",
        }
        for name in EXTRAS
    }
    return {
        "schema": "dimfree.doctor/1",
        "ok": not problems,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": versions,
        "devices": devices,
        "float64": float64,
        "extras": extras,
        "problems": problems,
    }


def print_examination(report: dict[str, Any]) -> None:
    """The findings as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, box=None)
    table.add_row("python", report["python"])
    for name, version in report["versions"].items():
        table.add_row(name, version or "not installed")
    table.add_row("devices", ", ".join(report["devices"]) or "none")
    table.add_row("float64", {True: "on", False: "off", None: "unknown"}[report["float64"]])
    for name, extra in report["extras"].items():
        table.add_row(f"extra {name}", "present" if extra["present"] else f"absent; to have it: {extra['remedy']}")
    console = Console()
    console.print(table)
    for problem in report["problems"]:
        console.print(f"\n{problem['what']}\n  {problem['remedy']}", markup=False, highlight=False)
    if report["ok"]:
        console.print("\nAll is well.", markup=False)
