// Sends requests to the server of this page and shows its responses.
"use strict";

const TEXT = "robots.txt";
const PICTURE = "assets/load-line.png";

/** What each experiment sends, and the status that it is about. */
const EXPERIMENTS = {
  whole: { path: TEXT, expected: 200 },
  head: { path: PICTURE, method: "HEAD", expected: 200 },
  range: { path: PICTURE, headers: { Range: "bytes=0-23" }, expected: 206 },
  suffix: { path: TEXT, headers: { Range: "bytes=-11" }, expected: 206 },
  several: { path: TEXT, headers: { Range: "bytes=0-9,-9" }, expected: 206 },
  beyond: { path: TEXT, headers: { Range: "bytes=1000000-" }, expected: 416 },
  unchanged: { path: TEXT, tagOf: TEXT, expected: 304 },
  precondition: { path: TEXT, headers: { "If-Match": '"another"' }, expected: 412 },
  missing: { path: "no/such/page", expected: 404 },
  method: { path: TEXT, method: "POST", expected: 405 },
};

/** Sixteen bytes a line, as numbers and as letters. */
function hexDump(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = [...bytes.slice(at, at + 16)];
    const numbers = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = row.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "."));
    lines.push(`${numbers.padEnd(48)} ${letters.join("")}`);
  }
  return lines.join("\n");
}

function contentText(answer, bytes) {
  if (bytes.length === 0) return "(no content)";
  const type = answer.headers.get("Content-Type") ?? "";
  if (type.startsWith("image/")) return hexDump(bytes.slice(0, 256));
  const text = new TextDecoder().decode(bytes);
  return text.length > 600 ? `${text.slice(0, 600)}\n… (${bytes.length} bytes in all)` : text;
}

async function send(experiment) {
  const headers = { ...experiment.headers };
  if (experiment.tagOf) {
    const before = await fetch(experiment.tagOf, { method: "HEAD", cache: "no-store" });
    headers["If-None-Match"] = before.headers.get("ETag") ?? "";
  }
  const method = experiment.method ?? "GET";
  const begin = performance.now();
  const answer = await fetch(experiment.path, { method, headers, cache: "no-store" });
  const bytes = new Uint8Array(await answer.arrayBuffer());
  const elapsed = performance.now() - begin;
  const sent = Object.entries(headers).map(([name, value]) => `> ${name}: ${value}`);
  const received = [...answer.headers].map(([name, value]) => `< ${name}: ${value}`);
  const target = new URL(experiment.path, location.href).pathname;
  return {
    status: answer.status,
    text: [
      `> ${method} ${target}`, ...sent, "",
      `< ${answer.status} ${answer.statusText}`, ...received, "",
      method === "HEAD" ? "(no content, as asked)" : contentText(answer, bytes), "",
      `${elapsed.toFixed(1)} ms in this browser`,
    ].join("\n"),
  };
}

function prepare(article) {
  const experiment = EXPERIMENTS[article.dataset.experiment];
  const button = article.querySelector("button");
  const output = article.querySelector(".answer");
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const { status, text } = await send(experiment);
      output.textContent = text;
      output.classList.toggle("unexpected", status !== experiment.expected);
      article.dataset.status = String(status);
    } catch (error) {
      output.textContent = `The request failed: ${error.message}`;
      output.classList.add("unexpected");
      article.dataset.status = "failed";
    } finally {
      button.disabled = false;
    }
  });
}

for (const article of document.querySelectorAll("[data-experiment]")) prepare(article);
document.documentElement.classList.add("scripted");
