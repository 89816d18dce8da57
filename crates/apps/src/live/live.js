"use strict";
// Draws what the server reports once a second: the last two minutes.
const SECONDS = 120;
// A longer pause is not drawn as if there were none, and a server that is silent for longer is said to be.
const PAUSE_S = 5;
const samples = [];
let newest = 0; // the number of the last sample
let received_ms = performance.now();
const $ = (id) => document.getElementById(id);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const number = (value) => value >= 100 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(2));
const time = (us) => us === null ? "–" : us >= 1e6 ? number(us / 1e6) + " s" : us >= 1e3 ? number(us / 1e3) + " ms" : number(us) + " µs";
const bytes = (value) => value === null ? "–" : number(value / 1048576) + " MiB";
const percent = (value) => value === null ? "–" : number(value * 100) + " %";
const ratio = (load) => !load ? "–" : load.ratio < 10 ? load.ratio.toFixed(2) : number(load.ratio);
const sum = (values) => Object.values(values).reduce((all, value) => all + value, 0);

const memory = ({ memory: m }) => ({
  resident: m.resident_bytes,
  ...(m.budget_bytes === null ? {} : { counted: m.used_bytes, budget: m.budget_bytes }),
  "socket buffers, estimated": m.socket_buffers_estimated_bytes,
});

const CHARTS = [
  { id: "rates", show: number, of: (s) => s.rates },
  { id: "refused", show: number, of: (s) => s.refused },
  { id: "queue", show: time, of: (s) => ({ age: s.queue.age_us }) },
  { id: "use", show: percent, top: 1, of: (s) => s.use },
  { id: "memory", show: bytes, of: memory },
];
const LETTERS = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];

function legend(id, entries) {
  const items = entries.map(([letter, text]) => {
    const item = document.createElement("span");
    if (letter) {
      const mark = document.createElement("i");
      mark.className = letter;
      item.append(mark);
    }
    item.append(text);
    return item;
  });
  $(id).replaceChildren(...items);
}

// A canvas in device pixels, and the place of a second in it.
function begin(id) {
  const canvas = $(id);
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.font = "11px system-ui, sans-serif";
  const left = 52, step = (width - left) / SECONDS;
  return { pen, left, step, width, height, x: (index) => left + (SECONDS - samples.length + index + 0.5) * step };
}

function grid(area, marks) {
  const { pen, left, width } = area;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const [y, text] of marks) {
    pen.strokeStyle = colour("--line");
    pen.beginPath();
    pen.moveTo(left, y);
    pen.lineTo(width, y);
    pen.stroke();
    pen.fillStyle = colour("--soft");
    pen.fillText(text, left - 6, y);
  }
}

function line(area, letter, values, y) {
  const { pen, x } = area;
  pen.strokeStyle = colour("--" + letter);
  pen.lineWidth = 1.5;
  pen.beginPath();
  let drawn = false;
  values.forEach((value, index) => {
    if (value === null || value === undefined) { drawn = false; return; }
    pen[drawn ? "lineTo" : "moveTo"](x(index), y(value));
    drawn = true;
  });
  pen.stroke();
  pen.lineWidth = 1;
}

function chart({ id, show, of, top }) {
  const rows = samples.map(of);
  const last = rows[rows.length - 1];
  const all = Object.keys(last);
  const names = all.filter((name) => rows.some((row) => row[name]));
  const letter = (name) => LETTERS[all.indexOf(name) % LETTERS.length];
  const area = begin(id);
  const most = top || Math.max(...rows.flatMap((row) => Object.values(row))) || 1;
  const y = (value) => 8 + (area.height - 16) * (1 - Math.min(value, most) / most);
  const marks = names.length ? [[y(most), show(most)], [y(most / 2), show(most / 2)]] : [];
  grid(area, [...marks, [y(0), "0"]]);
  names.forEach((name) => line(area, letter(name), rows.map((row) => row[name]), y));
  const texts = names.map((name) => [letter(name), `${name} ${show(last[name])}`]);
  legend(id + "-legend", texts.length ? texts : [["", "none"]]);
}

// Rows of powers of two microseconds, from 16 us to 128 s.
function heat() {
  const area = begin("latency");
  const { pen, x, step, height } = area;
  const low = 4, high = 27;
  const row = (height - 16) / (high - low);
  const y = (us) => 8 + (high - Math.min(high, Math.max(low, Math.log2(us)))) * row;
  const most = Math.max(1, ...samples.flatMap((s) => s.latency.heat.map((cell) => cell[1])));
  samples.forEach((s, index) => {
    for (const [power, count] of s.latency.heat) {
      const share = Math.log1p(count) / Math.log1p(most);
      pen.fillStyle = `rgba(${colour("--heat")}, ${0.12 + 0.68 * share})`;
      pen.fillRect(x(index) - step / 2, y(2 ** (power + 1)), Math.max(1, step), row);
    }
  });
  grid(area, [[y(100), "100 µs"], [y(1e4), "10 ms"], [y(1e6), "1 s"], [y(1e8), "100 s"]]);
  const names = [["b", "p50"], ["d", "p99"], ["e", "p999"]];
  for (const [letter, name] of names) line(area, letter, samples.map((s) => s.latency[name]), y);
  const last = samples[samples.length - 1].latency;
  legend("latency-legend", names.map(([letter, name]) => [letter, `${name === "p999" ? "p99.9" : name} ${time(last[name])}`]));
}

function cells(texts) {
  const row = document.createElement("tr");
  texts.forEach((text, index) => {
    const cell = document.createElement(index === 0 ? "th" : "td");
    if (index === 0) cell.scope = "row";
    cell.textContent = text;
    row.append(cell);
  });
  return row;
}

function tables() {
  const rows = samples.slice(-10).reverse().map((s) => cells([
    new Date(s.at_ms).toLocaleTimeString("en-GB"), number(sum(s.rates)),
    time(s.latency.p50), time(s.latency.p99), time(s.latency.p999), number(sum(s.refused)),
    number(s.queue.depth), time(s.queue.age_us), percent(s.use.loops ?? null), percent(s.use.workers ?? s.use.threads ?? null),
    percent(s.use.cpus ?? null), bytes(s.memory.resident_bytes), ratio(s.load),
  ]));
  $("seconds").replaceChildren(...rows);
  const sizes = Object.entries(samples[samples.length - 1].sizes);
  $("sizes").replaceChildren(...sizes.map(([name, value]) => cells([name, number(value)])));
}

function load() {
  const { load, at_ms } = samples[samples.length - 1];
  $("time").textContent = "As of " + new Date(at_ms).toLocaleTimeString("en-GB");
  $("ratio").textContent = ratio(load);
  const place = (value) => Math.min(value, 1.5) / 1.5 * 100;
  $("mark").hidden = $("range").hidden = !load;
  if (!load) {
    $("ratio-text").textContent = "An estimate needs a few seconds with requests.";
    return;
  }
  $("mark").style.left = place(load.ratio) + "%";
  $("range").style.left = place(load.low ?? load.ratio) + "%";
  $("range").style.width = place(load.high ?? load.ratio) - place(load.low ?? load.ratio) + "%";
  const range = load.low === null ? "" : ` (${load.low.toFixed(2)} to ${load.high.toFixed(2)})`;
  $("ratio-text").textContent = `of the load that this server can carry${range}: about ${number(load.capacity_per_s)} requests a second, limited by its ${load.limit}. An estimate; 1.00 is the load line.`;
}

function draw() {
  if (samples.length === 0 || document.hidden) return;
  load();
  CHARTS.forEach(chart);
  heat();
  tables();
}

// Once with the next frame, however many samples have come until then: a page that is hidden has no frames for hours.
let is_due = false;
function drawSoon() {
  if (is_due) return;
  is_due = true;
  requestAnimationFrame(() => {
    is_due = false;
    draw();
  });
}

const SILENT = "The server does not respond; trying again.";

// Read out by screen readers, so only if it changes.
function say(text) {
  if ($("state").textContent !== text) $("state").textContent = text;
}

// A number out of turn: a new event source receives all samples again, and a new server counts anew.
function received({ lastEventId, data }) {
  const sample = JSON.parse(data);
  const number = Number(lastEventId);
  if (number !== newest + 1 || sample.span_s > PAUSE_S) samples.length = 0;
  newest = number;
  samples.push(sample);
  if (samples.length > SECONDS) samples.shift();
  received_ms = performance.now();
  say("");
  drawSoon();
}

function sayIfSilent() {
  if (performance.now() - received_ms > PAUSE_S * 1000) say(SILENT);
}

function watch() {
  // Each response has the seconds since the last one that came, and ends; the browser asks again.
  const events = new EventSource("live/events");
  events.onmessage = received;
  events.onerror = () => {
    // Otherwise a response has ended or no server was reached, and the browser asks again by itself.
    if (events.readyState !== EventSource.CLOSED) return;
    say(SILENT);
    setTimeout(watch, 2000);
  };
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
addEventListener("resize", draw);
document.addEventListener("visibilitychange", draw);
setInterval(sayIfSilent, 1000);
watch();
