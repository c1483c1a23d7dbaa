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
    # As a dictionary: a cell that held marimo's own object would run again when the address changes.
    query = mo.query_params().to_dict()
    title, tab, unknown = views.opened(query)
    problem = mo.ui.dropdown(views.titles(), value=title, label="**Problem**", full_width=True)
    view = mo.ui.tabs(dict.fromkeys(views.VIEWS.values(), ""), value=tab)
    ticker = mo.ui.refresh(default_interval=1)
    return problem, query, ticker, unknown, view


@app.cell
def _(mo, problem, query, unknown, views):
    controls, wrong = views.controls(mo, problem.value, query)
    refused = [*unknown, *wrong]
    return controls, refused


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
def _(controls, extra, mo, problem, refused, ticker, view, views):
    _ = ticker.value  # this cell runs again while the ticker is on the page, which is while something is computed
    asked = extra.value if extra is not None else None
    views.show(mo, view.value, problem.value, controls.value, asked, ticker, refused)
    return


if __name__ == "__main__":
    app.run()
