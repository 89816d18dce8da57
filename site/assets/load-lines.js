// Draws response time against request rate for one queue with several servers (M/M/c).
"use strict";

/** Chance that a request has to wait: Erlang's C formula, by the stable recursion for B. */
function chanceToWait(servers, load) {
  let blocked = 1;
  for (let n = 1; n <= servers; n += 1) {
    blocked = (load * blocked) / (n + load * blocked);
  }
  const used = load / servers;
  return blocked / (1 - used * (1 - blocked));
}

/** Mean response time in seconds; `rate` must be below capacity. */
function meanTime(model, rate) {
  const wait = chanceToWait(model.servers, rate * model.service);
  return model.service + wait / (model.servers / model.service - rate);
}

/** Share of the requests that take longer than `time`. */
function shareAbove(model, rate, time) {
  const serve = 1 / model.service;
  const spare = model.servers * serve - rate;
  const wait = chanceToWait(model.servers, rate * model.service);
  const served = Math.exp(-serve * time);
  const gap = spare - serve;
  const both = Math.abs(gap) < 1e-6 * serve
    ? (1 + serve * time) * served
    : (spare * served - serve * Math.exp(-spare * time)) / gap;
  return (1 - wait) * served + wait * both;
}

/** The point between `low` and `high` up to which `holds` is true. */
function lastWhere(low, high, holds) {
  for (let step = 0; step < 60; step += 1) {
    const middle = (low + high) / 2;
    if (holds(middle)) low = middle; else high = middle;
  }
  return low;
}

/** Time within which 99 of 100 requests are answered. */
function tailTime(model, rate) {
  let high = model.service;
  while (shareAbove(model, rate, high) > 0.01) high *= 2;
  return lastWhere(0, high, (time) => shareAbove(model, rate, time) > 0.01);
}

/** Rate at which rate divided by mean response time is greatest. */
function kneeRate(model) {
  const capacity = model.servers / model.service;
  let best = 0;
  for (let step = 1; step < 2000; step += 1) {
    const rate = (capacity * step) / 2000;
    if (rate / meanTime(model, rate) > best / meanTime(model, best)) best = rate;
  }
  return best;
}

/** Highest rate that keeps the promise, or null if even a single request breaks it. */
function loadLine(model, target) {
  const capacity = model.servers / model.service;
  const kept = (rate) => shareAbove(model, rate, target) <= 0.01;
  return kept(0) ? lastWhere(0, capacity, kept) : null;
}

const frame = { left: 84, right: 740, top: 24, bottom: 396 };

function shape(name, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** A round step that divides `range` into about five. */
function roundStep(range) {
  const power = 10 ** Math.floor(Math.log10(range / 5));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => range / step <= 6);
}

function milliseconds(seconds) {
  const value = seconds * 1000;
  if (value < 1) return `${Math.round(value * 1000)} µs`;
  return `${value.toFixed(value < 10 ? 1 : 0)} ms`;
}

function perSecond(rate) {
  const digits = rate < 100 ? 1 : rate < 1000 ? 0 : -1;
  const rounded = digits < 0 ? Math.round(rate / 10) * 10 : Number(rate.toFixed(digits));
  return `${rounded.toLocaleString("en")} / s`;
}

function draw(svg, model, target) {
  const capacity = model.servers / model.service;
  const rateMax = capacity * 1.08;
  const timeMax = Math.max(model.service * 14, target * 1.25);
  const x = (rate) => frame.left + (rate / rateMax) * (frame.right - frame.left);
  const y = (time) => frame.bottom - (time / timeMax) * (frame.bottom - frame.top);
  const parts = [];
  const add = (name, attributes, text) => parts.push(shape(name, attributes, text));
  const line = loadLine(model, target);
  const knee = kneeRate(model);

  if (line !== null) {
    add("rect", { class: "safe", x: frame.left, y: y(target).toFixed(1),
      width: (x(line) - frame.left).toFixed(1), height: (frame.bottom - y(target)).toFixed(1) });
  }
  add("path", { class: "axis",
    d: `M${frame.left} ${frame.top}V${frame.bottom}H${frame.right}` });
  for (let rate = roundStep(rateMax); rate < rateMax; rate += roundStep(rateMax)) {
    add("text", { x: x(rate).toFixed(1), y: frame.bottom + 22, "text-anchor": "middle" },
      rate.toLocaleString("en"));
  }
  for (let time = roundStep(timeMax); time < timeMax; time += roundStep(timeMax)) {
    add("text", { x: frame.left - 8, y: (y(time) + 5).toFixed(1), "text-anchor": "end" },
      milliseconds(time).replace(".0 ", " "));
  }
  add("text", { x: (frame.left + frame.right) / 2, y: frame.bottom + 54, "text-anchor": "middle" },
    "requests per second");

  add("path", { class: "limit", d: `M${x(capacity).toFixed(1)} ${frame.top}V${frame.bottom}` });
  add("path", { class: "load-line", d: `M${frame.left} ${y(target).toFixed(1)}H${frame.right}`,
    "stroke-dasharray": "2 5" });
  if (line !== null) {
    add("path", { class: "load-line", d: `M${x(line).toFixed(1)} ${frame.bottom}V${y(target).toFixed(1)}` });
  }
  for (const [name, curve] of [["mean", meanTime], ["tail", tailTime]]) {
    let d = "";
    for (let step = 0; step <= 300; step += 1) {
      const rate = capacity * (1 - (1 - Math.min(step / 300, 0.9995)) ** 1.6);
      const height = y(curve(model, rate));
      d += `${d ? "L" : "M"}${x(rate).toFixed(1)} ${Math.max(height, frame.top).toFixed(1)}`;
      if (height < frame.top) break;
    }
    add("path", { class: name, d });
  }
  add("circle", { class: "knee", cx: x(knee).toFixed(1), cy: y(meanTime(model, knee)).toFixed(1), r: 6 });
  add("text", { class: "mean-text", x: (x(knee) - 8).toFixed(1),
    y: (y(meanTime(model, knee)) - 12).toFixed(1), "text-anchor": "end" }, "knee");
  if (line !== null) {
    add("circle", { class: "mark", cx: x(line).toFixed(1), cy: y(target).toFixed(1), r: 7 });
  }
  const shown = Math.min(y(target), frame.bottom - 30);
  add("text", { class: "strong", x: frame.left + 10, y: (shown - 9).toFixed(1) },
    line === null ? "asked for more than one request alone can keep" : "asked for");
  add("text", { x: (x(capacity) - 6).toFixed(1), y: frame.top - 8, "text-anchor": "end" }, "capacity");
  add("text", { class: "mean-text", x: frame.left + 10, y: (y(meanTime(model, 0)) - 10).toFixed(1) }, "mean");
  add("text", { class: "tail-text", x: frame.left + 10, y: (y(tailTime(model, 0)) - 10).toFixed(1) }, "99 of 100");

  const [title, description] = [svg.querySelector("title"), svg.querySelector("desc")];
  description.textContent = line === null
    ? "Even a single request takes longer than asked for."
    : `Mean and 99th percentile turn upwards near the capacity of ${perSecond(capacity)}; `
      + `the promise holds up to ${perSecond(line)}.`;
  svg.replaceChildren(title, description, ...parts);
  return { capacity, knee, line };
}

function start() {
  const find = (id) => document.getElementById(id);
  const sliders = ["service", "threads", "target"].map(find);
  const update = () => {
    const [service, servers, target] = sliders.map((slider) => Number(slider.value));
    const model = { service: service / 1e6, servers };
    find("service-value").textContent = milliseconds(model.service);
    find("threads-value").textContent = String(servers);
    find("target-value").textContent = milliseconds(target / 1000);
    const { capacity, knee, line } = draw(find("plot"), model, target / 1000);
    find("capacity").textContent = perSecond(capacity);
    find("knee").textContent = `${perSecond(knee)} (${Math.round((100 * knee) / capacity)} %)`;
    find("load-line").textContent = line === null
      ? "none" : `${perSecond(line)} (${Math.round((100 * line) / capacity)} %)`;
    find("reserve").textContent = line === null ? "all" : `${Math.round(100 - (100 * line) / capacity)} %`;
  };
  for (const slider of sliders) slider.addEventListener("input", update);
  update();
  document.documentElement.classList.add("scripted");
}

start();
