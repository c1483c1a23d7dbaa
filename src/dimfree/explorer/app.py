"""The explorer's notebook: controls at the side, one view at a time. `dimfree explore` serves it.

It is thin: what is computed is in `computations`, how it looks in `pictures` and `views`.
"""

import marimo

app = marimo.App(width="full", app_title="dimfree explorer", css_file="explorer.css")


@app.cell
def _():
    import marimo as mo

    from dimfree.explorer import views

    return mo, views


@app.cell
def _(mo, views):
    problem = mo.ui.dropdown(views.titles(), value=views.first_title(), label="**Problem**", full_width=True)
    view = mo.ui.tabs(dict.fromkeys(views.VIEWS, ""))
    return problem, view


@app.cell
def _(mo, problem, views):
    controls = views.controls(mo, problem.value)
    return (controls,)


@app.cell
def _(controls, mo, problem, views):
    mo.sidebar(views.side(mo, problem, controls), width="330px")
    return


@app.cell
def _(mo, view, views):
    mo.vstack([mo.Html(views.HEADER), view], gap=0)
    return


@app.cell
def _(mo, view, views):
    extra = views.extra_controls(mo, view.value)
    views.laid_out(mo, extra)
    return (extra,)


@app.cell
def _(controls, extra, mo, problem, view, views):
    views.show(mo, view.value, problem.value, controls.value, extra.value if extra is not None else None)
    return


if __name__ == "__main__":
    app.run()
