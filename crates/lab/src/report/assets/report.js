// Draws the charts of a report from the data that stands in the page. Everything that is drawn is
// also there without it: still pictures, tables, downloads.
"use strict";
(() => {
  const text = (id) => document.getElementById(id).textContent;
  const report = JSON.parse(text("report-data"));
  const root = document.documentElement;
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const coarse = matchMedia("(pointer: coarse)");
  const figures = new Map(report.figures.map((figure) => [figure.id, figure]));
  const hidden = new Map(report.figures.map((figure) => [figure.id, new Set()]));
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up"];
  const DASHES = ["solid", "dash"];
  const MARKERS_MAX = 40;
  const PERCENTILES = [[1, "0 %"], [2, "50 %"], [10, "90 %"], [100, "99 %"], [1e3, "99.9 %"], [1e4, "99.99 %"], [1e5, "99.999 %"]];
  const GRIDS = ["heat_map", "surface"];

  // Numbers as people read them.
  function digits(value, count) {
    if (!Number.isFinite(value)) return "–";
    if (value === 0) return "0";
    const magnitude = Math.floor(Math.log10(Math.abs(value))) + 1;
    const decimals = Math.min(Math.max(count - magnitude, 0), 9);
    return Number(value.toFixed(decimals)).toLocaleString("en", { maximumFractionDigits: decimals });
  }
  function valueText(value, unit) {
    const scaled = (scales) => {
      const [scale, name] = scales.filter(([scale]) => Math.abs(value) >= scale).pop() ?? scales[0];
      return `${digits(value / scale, 3)} ${name}`;
    };
    switch (unit) {
      case "per_second": return `${digits(value, 4)}/s`;
      case "bytes_per_second": return scaled([[1, "B/s"], [1e3, "kB/s"], [1e6, "MB/s"], [1e9, "GB/s"]]);
      case "microseconds": return scaled([[1, "µs"], [1e3, "ms"], [1e6, "s"]]);
      case "share": return `${digits(value * 100, 3)} %`;
      case "bytes": return scaled([[1, "B"], [1024, "KiB"], [2 ** 20, "MiB"], [2 ** 30, "GiB"]]);
      default: return digits(value, 4);
    }
  }

  const axisTitle = (axis) => axis.divided_unit ? `${axis.label} (${axis.divided_unit})` : axis.label;
  const middle = (figure, estimate) => figure.spread === "min_max" ? estimate.mean : estimate.center;
  function bounds(figure, estimate) {
    if (figure.spread === "min_max") return estimate.count > 1 ? [estimate.min, estimate.max] : null;
    return estimate.interval ? [estimate.interval.low, estimate.interval.high] : null;
  }
  function estimateText(figure, point, isReference) {
    const value = (it) => valueText(it, figure.value.unit);
    const around = bounds(figure, point.estimate);
    const trials = point.trials.length;
    const room = point.room ?? null;
    const sign = room === null ? "" : room > point.estimate.center ? "≥ " : "≤ ";
    return sign + value(middle(figure, point.estimate)) + (around ? ` (${value(around[0])} to ${value(around[1])})` : "")
      + (isReference ? ", published" : `, ${trials} trial${trials === 1 ? "" : "s"}`) + (room === null ? "" : `; client-limited, room to ${value(room)}`);
  }
  const nameOf = (axis, at) => axis.names[at] ?? digits(at, 6);

  // What Plotly is given.
  function curveStyle(figure, curve) {
    const index = curve.legend;
    return {
      colour: curve.is_reference ? colour("--soft") : colour(`--c${index % 8}`),
      dash: curve.is_reference ? "dot" : DASHES[Math.floor(index / 4) % 2],
      symbol: SYMBOLS[index % 4],
    };
  }
  const faint = (hex, share) => {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    return `rgba(${r},${g},${b},${share})`;
  };

  function discardedTrace(figure, curve, style) {
    const marks = curve.points.flatMap((point) => point.discarded.filter((mark) => mark.value !== null)
      .map((mark) => ({ x: point.x, y: mark.value / figure.value.divisor, mark })));
    if (marks.length === 0) return [];
    return [{
      type: "scatter", mode: "markers", name: figure.legend[curve.legend] || figure.value.label, x: marks.map((it) => it.x), y: marks.map((it) => it.y),
      meta: { role: "discarded" }, opacity: 0.8,
      marker: { symbol: "x-thin", size: 9, line: { width: 2, color: style.colour } },
      customdata: marks.map(({ mark }) => `<s>${valueText(mark.value, figure.value.unit)}</s>, discarded: ${mark.reasons.join("; ")}`),
      hovertemplate: "%{customdata}<extra></extra>",
    }];
  }

  function lineTraces(figure, panel) {
    const bands = [], lines = [];
    for (const curve of panel.curves) {
      if (hidden.get(figure.id).has(curve.legend)) continue;
      const style = curveStyle(figure, curve);
      const points = curve.points.filter((point) => point.estimate);
      const y = points.map((point) => middle(figure, point.estimate) / figure.value.divisor);
      const around = points.map((point) => bounds(figure, point.estimate));
      const isBar = figure.kind === "bars";
      const trace = {
        type: isBar ? "bar" : "scatter", name: figure.legend[curve.legend] || figure.value.label,
        x: points.map((point) => point.x), y,
        meta: { role: "curve", legend: curve.legend },
        customdata: points.map((point) => estimateText(figure, point, curve.is_reference)),
        hovertemplate: "%{customdata}" + (figure.legend[curve.legend] ? "<extra>%{fullData.name}</extra>" : "<extra></extra>"),
      };
      if (isBar) {
        trace.marker = { color: points.map((point) => point.room == null ? style.colour : faint(style.colour, 0.45)), line: { color: style.colour, width: points.map((point) => point.room == null ? 0 : 2) } };
      } else {
        trace.mode = "lines+markers";
        trace.line = { color: style.colour, width: 2.4, dash: style.dash };
        trace.marker = { color: style.colour, size: 8, symbol: points.map((point) => point.room == null ? style.symbol : `${style.symbol}-open`), maxdisplayed: points.length <= MARKERS_MAX ? 0 : 16, line: { width: points.map((point) => point.room == null ? 1 : 2), color: points.map((point) => point.room == null ? colour("--card") : style.colour) } };
        // A line of one point is nothing.
        if (curve.is_reference && points.length > 1) trace.mode = "lines";
      }
      const hasBars = isBar || figure.spread === "min_max";
      if (hasBars && around.some(Boolean)) {
        const off = (at, index) => around[index] ? Math.abs(around[index][at] / figure.value.divisor - y[index]) : 0;
        trace.error_y = {
          type: "data", symmetric: false, array: y.map((_, index) => off(1, index)), arrayminus: y.map((_, index) => off(0, index)),
          color: isBar ? colour("--ink") : style.colour, thickness: 1.5, width: 5,
        };
      } else if (around.filter(Boolean).length > 1) {
        const there = points.map((point, index) => [point.x, around[index]]).filter(([, it]) => it);
        const edge = (at) => ({
          type: "scatter", mode: "lines", x: there.map(([x]) => x), y: there.map(([, it]) => it[at] / figure.value.divisor),
          line: { width: 0 }, hoverinfo: "skip", meta: { role: "band" },
        });
        bands.push(edge(0), { ...edge(1), fill: "tonexty", fillcolor: faint(style.colour, 0.17) });
      }
      lines.push(trace, ...discardedTrace(figure, curve, style));
    }
    const order = ["band", "curve", "discarded"];
    return [...bands, ...lines].sort((one, other) => order.indexOf(one.meta.role) - order.indexOf(other.meta.role));
  }

  function gridOf(figure, panel) {
    const sorted = (values) => [...new Set(values)].sort((one, other) => one - other);
    const curves = figure.panels.flatMap((it) => it.curves);
    const xs = sorted(curves.flatMap((curve) => curve.points.map((point) => point.x)));
    const ys = sorted(curves.map((curve) => curve.y));
    const at = (x, y) => panel.curves.find((curve) => curve.y === y)?.points.find((point) => point.x === x);
    const rows = (of) => ys.map((y) => xs.map((x) => of(at(x, y), x, y)));
    const drawn = curves.flatMap((curve) => curve.points).filter((point) => point.estimate).map((point) => middle(figure, point.estimate) / figure.value.divisor);
    return {
      xs, ys, at, least: Math.min(...drawn), most: Math.max(...drawn),
      z: rows((point) => point?.estimate ? middle(figure, point.estimate) / figure.value.divisor : null),
      texts: rows((point, x, y) => {
        const where = `${figure.x.label} ${nameOf(figure.x, x)}, ${figure.y.label} ${nameOf(figure.y, y)}`;
        return point?.estimate ? `${where}<br><b>${estimateText(figure, point)}</b>` : where;
      }),
    };
  }

  function gridTraces(figure, panel, plot) {
    const grid = gridOf(figure, panel);
    const bar = { thickness: 12, outlinewidth: 0, len: 0.86, tickfont: { size: 11 }, tickformat: "~s" };
    const common = {
      x: grid.xs.map((_, index) => index), y: grid.ys.map((_, index) => index), z: grid.z, text: grid.texts,
      meta: { role: "grid" }, colorscale: "Viridis", colorbar: bar, showscale: plot.clientWidth > 420, hovertemplate: "%{text}<extra></extra>",
    };
    const marks = grid.ys.flatMap((y, row) => grid.xs.map((x, column) => ({ row, column, point: grid.at(x, y) }))).filter(({ point }) => point?.discarded.length);
    const discards = {
      mode: "markers", meta: { role: "discarded" }, hovertemplate: "%{customdata}<extra></extra>",
      customdata: marks.map(({ point }) => point.discarded.map((mark) => `<s>${mark.value === null ? "no value" : valueText(mark.value, figure.value.unit)}</s>, discarded: ${mark.reasons.join("; ")}`).join("<br>")),
    };
    if (figure.kind === "surface") {
      const heights = marks.map(({ point }) => (point.discarded.find((mark) => mark.value !== null)?.value ?? 0) / figure.value.divisor);
      const white = { show: true, color: "rgba(255,255,255,.45)", highlight: false };
      return [
        { ...common, type: "surface", cmin: grid.least, cmax: grid.most,
          contours: { x: white, y: white, z: { highlight: true, highlightcolor: "#fff" } },
          lighting: { ambient: 0.82, diffuse: 0.45, specular: 0.08, roughness: 0.9 } },
        { ...discards, type: "scatter3d", x: marks.map((it) => it.column), y: marks.map((it) => it.row), z: heights,
          marker: { symbol: "x", size: 4, color: colour("--signal") } },
      ];
    }
    const numbers = grid.z.map((row) => row.map((value) => value === null ? "" : digits(value, 3)));
    return [
      { ...common, type: "heatmap", zmin: grid.least, zmax: grid.most, xgap: 3, ygap: 3, customdata: grid.texts, text: numbers,
        texttemplate: grid.xs.length <= 12 ? "%{text}" : "", hovertemplate: "%{customdata}<extra></extra>" },
      { ...discards, type: "scatter", x: marks.map((it) => it.column + 0.38), y: marks.map((it) => it.row + 0.36),
        marker: { symbol: "x-thin", size: 7, line: { width: 2, color: "#fff" } } },
    ];
  }

  function axisStyle() {
    const font = { color: colour("--soft"), size: 12 };
    return { gridcolor: colour("--rule"), zerolinecolor: colour("--rule"), linecolor: colour("--line"), tickfont: font, title: { font: { ...font, size: 13 }, standoff: 10 }, automargin: true, fixedrange: coarse.matches };
  }
  const titled = (axis, title) => ({ ...axis, title: { ...axis.title, text: title } });
  function ticksOf(axis, values) {
    return { tickmode: "array", tickvals: values.map((_, index) => index), ticktext: values.map((at) => nameOf(axis, at)) };
  }

  function layoutOf(figure, panel, plot) {
    const layout = {
      margin: { l: 66, r: 14, t: 12, b: 54 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
      font: { family: getComputedStyle(document.body).fontFamily, color: colour("--ink"), size: 13 }, hovermode: "x unified",
      hoverlabel: { bgcolor: colour("--card"), bordercolor: colour("--line"), font: { color: colour("--ink"), size: 13 } }, dragmode: coarse.matches ? false : "zoom",
    };
    if (GRIDS.includes(figure.kind)) return gridLayout(figure, panel, layout, plot);
    const x = titled(axisStyle(), axisTitle(figure.x)), y = titled(axisStyle(), axisTitle(figure.value));
    x.showgrid = false; x.zeroline = false; x.showline = true; x.ticks = "outside"; x.tickcolor = colour("--line");
    if (figure.x.names.length > 0) {
      x.tickvals = figure.x.names.map((_, index) => index); x.ticktext = figure.x.names;
      x.range = [-0.5, figure.x.names.length - 0.5];
    } else if (figure.kind === "spectrum") {
      x.type = "log"; x.tickvals = PERCENTILES.map(([at]) => at); x.ticktext = PERCENTILES.map(([, name]) => name);
    } else if (figure.x.log) {
      x.type = "log"; x.dtick = "D2"; x.tickformat = "~s";
      const at = [...new Set(panel.curves.flatMap((curve) => curve.points.map((point) => point.x)))];
      if (at.length <= 12) { x.tickmode = "array"; x.tickvals = at; x.ticktext = at.map((it) => it >= 1e4 ? `${digits(it / 1e3, 4)}k` : digits(it, 5)); delete x.dtick; }
    }
    const all = figure.panels.flatMap((it) => it.curves.flatMap((curve) => curve.points));
    const values = all.flatMap((point) => [...(point.estimate ? [middle(figure, point.estimate), ...(bounds(figure, point.estimate) ?? [])] : []), ...point.discarded.map((mark) => mark.value).filter((it) => it !== null)]).map((it) => it / figure.value.divisor);
    const most = Math.max(...values);
    if (figure.value.log && values.some((it) => it > 0)) {
      const least = Math.min(...values.filter((it) => it > 0));
      y.type = "log"; y.range = [Math.log10(least / 1.2), Math.log10(most * 1.2)]; y.tickformat = "~r";
      y.dtick = most / least > 200 ? 1 : "D2";
    } else {
      y.range = [Math.min(0, ...values), most > 0 ? most * 1.06 : 1]; y.tickformat = most >= 1e4 ? "~s" : ",~r";
    }
    if (figure.kind === "bars") { layout.bargap = 0.26; layout.bargroupgap = 0.06; layout.hovermode = "closest"; }
    return { ...layout, xaxis: x, yaxis: y };
  }

  function gridLayout(figure, panel, layout, plot) {
    const { xs, ys } = gridOf(figure, panel);
    const x = { ...titled(axisStyle(), axisTitle(figure.x)), ...ticksOf(figure.x, xs), showgrid: false, zeroline: false };
    const y = { ...titled(axisStyle(), axisTitle(figure.y)), ...ticksOf(figure.y, ys), showgrid: false, zeroline: false };
    layout.hovermode = "closest";
    if (figure.kind === "heat_map") return { ...layout, xaxis: x, yaxis: y };
    const wall = { showbackground: true, backgroundcolor: colour("--paper"), gridcolor: colour("--rule"), showgrid: true, showspikes: false, tickfont: { size: 11, color: colour("--soft") } };
    const scene = (axis, title) => ({ ...wall, tickmode: axis.tickmode, tickvals: axis.tickvals, ticktext: axis.ticktext, title: { text: title, font: { size: 12, color: colour("--soft") } } });
    return {
      ...layout, margin: { l: 0, r: 0, t: 0, b: 0 }, dragmode: "turntable",
      scene: {
        xaxis: scene(x, figure.x.label), yaxis: scene(y, figure.y.label),
        zaxis: { ...wall, rangemode: "tozero", tickformat: "~s", title: { text: axisTitle(figure.value), font: { size: 12, color: colour("--soft") } } },
        aspectmode: "manual", aspectratio: { x: 1.15, y: 1.15, z: 0.78 }, camera: cameraAt(figure.id, panel, plot),
      },
    };
  }

  // Where each surface is seen from, so that it stays so when colours change.
  const views = new Map();
  function cameraAt(id, panel, plot) {
    const { turn, up } = views.get(id + panel.title) ?? { turn: -125, up: 26 };
    const [a, b] = [turn, up].map((degrees) => degrees * Math.PI / 180);
    const far = 2.25 * Math.max(1, 1.3 * plot.clientHeight / plot.clientWidth); // the whole box, in tall places too
    return { eye: { x: far * Math.cos(b) * Math.cos(a), y: far * Math.cos(b) * Math.sin(a), z: far * Math.sin(b) }, center: { x: 0.02, y: 0, z: -0.14 } };
  }

  const CONFIG = { displayModeBar: false, responsive: true, doubleClick: "reset", showTips: false };
  const tracesOf = (figure, panel, plot) => GRIDS.includes(figure.kind) ? gridTraces(figure, panel, plot) : lineTraces(figure, panel);

  const hasWebGL = (() => {
    const canvas = document.createElement("canvas");
    return Boolean(canvas.getContext("webgl2") ?? canvas.getContext("webgl"));
  })();

  async function draw(element) {
    const figure = figures.get(element.dataset.figure);
    if (figure.kind === "surface" && !hasWebGL) {
      element.dataset.drawn = "still";
      return;
    }
    element.classList.add("drawn");
    const plots = [...element.querySelectorAll(".plot")];
    try {
      await Promise.all(plots.map((plot, index) => Plotly.react(plot, tracesOf(figure, figure.panels[index], plot), layoutOf(figure, figure.panels[index], plot), CONFIG)));
    } catch (error) {
      // The still picture is there.
      plots.forEach((plot) => Plotly.purge(plot));
      element.classList.remove("drawn");
      element.dataset.failed = String(error);
      return;
    }
    element.dataset.drawn = "yes";
  }

  // By keyboard: left and right along a curve, up and down between curves; surfaces are turned.
  const places = new WeakMap();
  function keyed(event, element, plot, panel) {
    const figure = figures.get(element.dataset.figure);
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!step || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    if (figure.kind === "surface") {
      const view = views.get(figure.id + panel.title) ?? { turn: -125, up: 26 };
      views.set(figure.id + panel.title, { turn: view.turn + 10 * step[0], up: Math.min(85, Math.max(5, view.up - 8 * step[1])) });
      Plotly.relayout(plot, { "scene.camera": cameraAt(figure.id, panel, plot) });
      return;
    }
    const curves = plot.data.map((trace, index) => ({ trace, index })).filter(({ trace }) => ["curve", "discarded", "grid"].includes(trace.meta?.role) && trace.x.length > 0);
    if (curves.length === 0) return;
    const place = places.get(plot) ?? { curve: 0, point: -1, row: 0 };
    const isGrid = curves[place.curve]?.trace.meta.role === "grid";
    if (isGrid) place.row = Math.min(Math.max(place.row - step[1], 0), curves[place.curve].trace.y.length - 1);
    else place.curve = (place.curve + step[1] + curves.length) % curves.length;
    const { trace, index } = curves[place.curve] ?? curves[0];
    place.point = Math.min(Math.max(place.point + step[0], 0), trace.x.length - 1);
    places.set(plot, place);
    const pointNumber = isGrid ? [place.row, place.point] : place.point;
    const said = isGrid ? trace.customdata[place.row][place.point]
      : `${trace.name}, ${figure.x.label} ${spoken(figure, trace.x[place.point])}: ${trace.customdata[place.point]}`;
    Plotly.Fx.hover(plot, [{ curveNumber: index, pointNumber }]);
    element.querySelector(".reading").textContent = said.replace(/<br>/g, ": ").replace(/<[^>]*>/g, "");
  }
  const spoken = (figure, x) => figure.kind === "spectrum" ? `${digits(100 - 100 / x, 6)} %` : nameOf(figure.x, x);

  function download(name, type, content) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function wire(element) {
    const figure = figures.get(element.dataset.figure);
    element.querySelectorAll(".legend button").forEach((button) => button.addEventListener("click", () => {
      const off = hidden.get(figure.id), index = Number(button.dataset.legend);
      if (!off.delete(index)) off.add(index);
      button.setAttribute("aria-pressed", String(!off.has(index)));
      draw(element);
    }));
    element.querySelectorAll(".plot").forEach((plot, index) => plot.addEventListener("keydown", (event) => keyed(event, element, plot, figure.panels[index])));
    element.querySelector("[data-save=svg]").addEventListener("click", () => download(`${figure.id}.svg`, "image/svg+xml", element.querySelector(".still svg").outerHTML));
    element.querySelectorAll("[data-needs-script]").forEach((it) => it.hidden = false);
  }

  // The library is unpacked by the browser; one that cannot keeps the still pictures.
  async function library() {
    const packed = Uint8Array.from(atob(text("plotly-packed").trim()), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    script.remove();
  }

  async function start() {
    const charts = [...document.querySelectorAll("figure[data-figure]")];
    charts.forEach(wire);
    document.querySelector("[data-save=json]").addEventListener("click", () => download("report.json", "application/json", text("report-data")));
    document.querySelectorAll("[data-needs-script]").forEach((it) => it.hidden = false);
    await library();
    root.classList.add("scripted");
    // Surfaces far from view give their share of the graphics memory back: browsers have 16 or so.
    const near = new IntersectionObserver((entries) => entries.forEach(({ target, isIntersecting }) => {
      const isSurface = figures.get(target.dataset.figure).kind === "surface";
      if (isIntersecting && !target.classList.contains("drawn")) draw(target);
      else if (!isIntersecting && isSurface && target.classList.contains("drawn")) {
        target.querySelectorAll(".plot").forEach((plot) => Plotly.purge(plot));
        target.classList.remove("drawn");
        delete target.dataset.drawn;
      }
    }), { rootMargin: "500px" });
    charts.forEach((chart) => near.observe(chart));
    dark.addEventListener("change", () => charts.filter((it) => it.classList.contains("drawn")).forEach(draw));
  }
  start().catch((error) => { root.dataset.failed = String(error); });
})();
