"use strict";
// A kernel's instructions: only visible rows have elements.

const ROW = 20;

/** Measures by which instructions can be coloured: name, values, and whether their sum has a meaning. */
function metrics(kernel, code) {
  const found = [];
  if (code.executions) found.push({ name: "executions by waves", values: code.executions, sum: true });
  if (code.lanes) found.push({ name: "active lanes, summed", values: code.lanes, sum: true });
  if (code.executions && code.lanes) {
    const idle = code.lanes.map((lanes, at) => (lanes === null || code.executions[at] === null ? null : code.executions[at] * kernel.wave_size - lanes));
    if (idle.some((one) => one)) found.push({ name: "idle lanes, summed", values: idle, sum: true });
  }
  for (const one of code.heat) found.push({ name: `${one.tool}: ${one.name}`, values: one.values });
  found.push({ name: "live vector registers", values: code.live_vgprs }, { name: "live scalar registers", values: code.live_sgprs });
  return found;
}

/** The listing's rows in order: functions, blocks, source lines, instructions. */
function lines(code, sources) {
  const rows = [], position = new Map(code.blocks.block.map((block, at) => [block, at]));
  let block = null, source = null;
  code.address.forEach((_, at) => {
    if (code.block[at] !== block) {
      block = code.block[at];
      rows.push({ block: position.get(block) });
      source = null;
    }
    const line = placeText(code, sources, at);
    if (line && line !== source) rows.push({ source: (source = line) });
    rows.push({ at });
  });
  return rows;
}

/** The line to which an instruction is charged, and its own line if that differs. */
function placeText(code, sources, at) {
  const place = code.place[at], chain = code.chain.which[at];
  if (place < 0) return chain < 0 ? null : code.chain.texts[chain];
  const text = `${sources[code.source.file[place]].path}:${code.source.line[place]}`;
  return chain < 0 ? text : code.chain.texts[chain].startsWith(`${text},`) ? code.chain.texts[chain] : `${text} ← ${code.chain.texts[chain]}`;
}

/** Places without the folders of their files. */
const plainPath = (places) => places.replace(/[^,\s][^,]*?([^/,]+:\d+)/g, "$1");

class Listing {
  constructor(kernel, code, sources, pick) {
    this.pick = pick;
    this.line = null;
    this.kernel = kernel;
    this.code = code;
    this.rows = lines(code, sources);
    this.rowOf = new Map();
    this.rowOfBlock = new Map();
    this.rows.forEach((row, number) => (row.at !== undefined ? this.rowOf.set(row.at, number) : row.block !== undefined && this.rowOfBlock.set(row.block, number)));
    this.space = h("div", { class: "space", style: { height: `${this.rows.length * ROW}px` } });
    this.view = h("div", { class: "lines", tabindex: "0", role: "rowgroup", scroll: () => this.later(), keydown: (event) => this.key(event) }, this.space);
    this.count = h("span", { role: "columnheader" });
    this.element = h("div", { class: `code listing${code.lanes && code.executions ? "" : " nolanes"}`, role: "table", "aria-label": "Instructions", "aria-rowcount": this.rows.length },
      h("div", { class: "head", role: "row" }, this.count, h("span", { role: "columnheader", title: "Mean active lanes of a wave" }, "lanes"), h("span", { role: "columnheader", title: "Live scalar and vector registers" }, "live s / v"),
        h("span", { role: "columnheader", title: "● has a hook, ○ is counted, ✕ a hook was refused" }, "site"), h("span", { role: "columnheader" }, "address"), h("span", { role: "columnheader" }, "instruction")), this.view);
    this.marked = null;
    this.waiting = false;
  }

  setMetric(metric) {
    this.metric = metric;
    this.most = metric.values.reduce((most, one) => Math.max(most, one ?? 0), 0);
    this.count.textContent = metric.name.split(": ").pop();
    this.count.title = metric.name;
    this.draw();
  }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  draw() {
    const first = Math.max(0, Math.floor(this.view.scrollTop / ROW) - 8);
    const last = Math.min(this.rows.length, first + Math.ceil((this.view.clientHeight || 700) / ROW) + 16);
    const shown = [];
    for (let number = first; number < last; number++) shown.push(this.row(number));
    this.space.replaceChildren(...shown);
  }

  row(number) {
    const row = this.rows[number], { code } = this, style = { top: `${number * ROW}px` };
    const attributes = { role: "row", "aria-rowindex": number + 1, style };
    const mark = number === this.marked ? " at" : "";
    if (row.source) return h("div", { ...attributes, class: `row source${mark}`, title: row.source }, h("span", { role: "cell" }, plainPath(row.source)));
    if (row.block !== undefined) return h("div", { ...attributes, class: `row block${mark}` }, h("span", { role: "cell" }, ...this.blockText(row.block)));
    const { at } = row, value = this.metric.values[at], share = this.most && value ? value / this.most : 0;
    style["--share"] = `${(100 * share).toFixed(2)}%`;
    if (share) style["--warmth"] = (0.22 * share).toFixed(3);
    const cell = (text, name, title) => h("span", { role: "cell", class: name, title }, text);
    const sites = code.sites[at], lanes = code.lanes?.[at], times = code.executions?.[at];
    return h("div", { ...attributes, class: `row${share ? " hot" : ""}${this.line !== null && code.place[at] === this.line ? " mine" : ""}${mark}`, "data-at": at, click: () => this.pick(at) },
      cell(short(value), "heat", value === null ? null : exact(value)),
      cell(times && lanes !== null && lanes !== undefined ? String(Number((lanes / times).toFixed(1))) : "", "lanes"),
      cell(`${code.live_sgprs[at]} / ${code.live_vgprs[at]}`, "live"),
      cell(sites & 4 ? "✕" : sites & 1 ? "●" : sites & 2 ? "○" : "", sites & 4 ? "bad" : "", sites & 4 ? "a hook was refused" : sites & 1 ? "has a hook" : sites & 2 ? "counted" : null),
      cell(hex(code.address[at]), "address"), cell(code.text[at], "text", code.text[at]));
  }

  blockText(at) {
    const { blocks } = this.code, entered = this.entered(at), depth = blocks.depth[at];
    const links = (blocks.successors[at] ?? []).flatMap((to, which) => [which ? ", " : " → ", h("a", { href: "#", click: (event) => { event.preventDefault(); this.onBlock(blocks.block.indexOf(to)); } }, `${to}`)]);
    const called = blocks.function[at] === this.kernel.symbol ? "" : ` · ${blocks.function[at]}`;
    return [blocks.title[at] || `block ${blocks.block[at]}`, h("span", { class: "quiet" }, `${blocks.title[at] ? ` · block ${blocks.block[at]}` : ""}${called}${depth ? ` · loop depth ${depth}` : ""}${entered === null ? "" : ` · entered ${amount(entered, "time")}`}`, ...links)];
  }

  /** How often waves entered a block; null if not counted. */
  entered(at) {
    const first = this.rows[this.rowOfBlock.get(at) + 1];
    if (!this.code.executions || !first) return null;
    const row = this.rows.slice(this.rowOfBlock.get(at)).find((one) => one.at !== undefined);
    return this.code.executions[row.at];
  }

  /** Bring a row into view and mark it. */
  goTo(number) {
    this.marked = number;
    this.view.scrollTop = Math.max(0, number * ROW - this.view.clientHeight / 3);
    this.draw();
  }

  /** Mark all instructions of a line. */
  mine(line) {
    this.line = line;
    this.draw();
  }

  key(event) {
    const page = Math.floor(this.view.clientHeight / ROW) - 1;
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || event.target !== this.view) return;
    event.preventDefault();
    const now = this.marked ?? Math.floor(this.view.scrollTop / ROW);
    const next = Math.min(this.rows.length - 1, Math.max(0, now + step));
    this.marked = next;
    if (next * ROW < this.view.scrollTop) this.view.scrollTop = next * ROW;
    if ((next + 1) * ROW > this.view.scrollTop + this.view.clientHeight) this.view.scrollTop = (next + 1) * ROW - this.view.clientHeight;
    this.draw();
    if (this.rows[next].at !== undefined) this.pick(this.rows[next].at);
  }
}

/** The metric over all instructions in order. A click goes to the instruction. */
function profile(listing) {
  const chart = h("div", { class: "profile chart" });
  let plot = null;
  function make() {
    const width = chart.clientWidth || 600, values = listing.metric.values;
    plot?.destroy();
    const axis = { stroke: colour("--quiet"), grid: { show: false }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    plot = new uPlot({
      width, height: 96, legend: { show: false }, padding: [8, 8, 0, 0],
      cursor: { y: false, drag: { x: false }, points: { show: false } },
      scales: { x: { time: false, range: [0, Math.max(values.length, 1)] }, y: { range: [0, listing.most || 1] } },
      series: [{}, { stroke: `rgb(${colour("--heat")})`, fill: `rgba(${colour("--heat")}, 0.35)`, width: 1, points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }), spanGaps: false }],
      axes: [{ ...axis, values: (u, ticks) => ticks.map((one) => (Number.isInteger(one) ? exact(one) : "")), size: 22 }, { ...axis, values: (u, ticks) => ticks.map(short), size: 62, space: 24 }],
    }, [[...values.keys(), values.length], [...values, values.at(-1) ?? null]], chart);
  }
  chart.addEventListener("click", () => {
    const at = Math.min(listing.metric.values.length - 1, Math.max(0, Math.floor(plot.posToVal(plot.cursor.left, "x"))));
    listing.goTo(listing.rowOf.get(at));
  });
  themed.push(() => { if (chart.isConnected) make(); });
  new ResizeObserver(() => { if (plot && Math.abs(plot.width - chart.clientWidth) > 1) make(); }).observe(chart);
  return { element: chart, make };
}
