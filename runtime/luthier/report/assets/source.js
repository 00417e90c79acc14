"use strict";
// A kernel's source text beside its instructions, with the costs of its lines: only visible rows have elements.

/** Measures of tools with a column of their own: name in a tool's table, heading, meaning. */
const LINE_MEASURES = [["lines/request", "lines/rq", "Cache lines accessed by a request of a wave"], ["efficiency %", "eff %", "Bytes used of the accessed cache lines"],
  ["conflicts", "confl", "Cycles of LDS bank conflicts"], ["divergent", "diverg", "Times that a branch divided the lanes of a wave"]];

class Source {
  constructor(kernel, code, sources, pick) {
    const { source } = code;
    this.sources = sources;
    this.code = code;
    this.pick = pick;
    this.rows = [];
    this.rowOf = new Map();
    this.marked = null;
    this.waiting = false;
    this.of = new Map(source.line.map((line, at) => [`${source.file[at]}:${line}`, at]));
    const costs = new Map();
    source.file.forEach((file, at) => costs.set(file, (costs.get(file) ?? 0) + (source.executed?.[at] ?? 1)));
    this.files = [...costs].sort((one, other) => other[1] - one[1]).map(([file]) => file);
    this.file = this.files[0];
    this.most = (source.executed ?? []).reduce((most, one) => Math.max(most, one ?? 0), 0);
    this.columns = [];
    const column = (name, title, get, share) => source.line.some((_, at) => get(at)) && this.columns.push({ name, title, get, share });
    if (source.executed) column("instr", "Instructions executed by waves", (at) => short(source.executed[at]), (at) => source.executed[at] / (this.most || 1));
    if (source.times) column("runs", "Executions of the line's most executed instruction", (at) => short(source.times[at]));
    if (source.lanes) column("lanes", `Active lanes of a wave, of ${kernel.wave_size}`, (at) => (source.lanes[at] === null ? "" : source.lanes[at].toFixed(1)));
    for (const [name, head, title] of LINE_MEASURES) {
      const one = source.measures.find((measure) => measure.name === name && measure.values.some((value) => value !== null));
      if (one) column(head, `${title} (${one.tool})`, (at) => short(one.values[at]));
    }
    for (const what of ["stall", "issue"]) { // of the first GPU; the instructions can be coloured by those of others
      const one = source.measures.find((measure) => measure.tool === "projected" && measure.name.startsWith(what));
      if (one) column(what, `Projected ${one.name}, of a wave alone`, (at) => short(one.values[at] ?? 0), what === "stall" && !source.executed ? (at) => (one.values[at] ?? 0) / (Math.max(...one.values) || 1) : undefined);
    }
    this.space = h("div", { class: "space" });
    this.view = h("div", { class: "lines", tabindex: "0", role: "rowgroup", scroll: () => { this.head.style.transform = `translateX(${-this.view.scrollLeft}px)`; this.later(); }, keydown: (event) => this.key(event) }, this.space);
    this.note = h("p", { class: "quiet note" });
    this.choice = h("select", { "aria-label": "Source file", change: () => { this.show(this.files[this.choice.value]); } }, this.files.map((file, at) => h("option", { value: at }, fileName(sources[file].path))));
    const widths = this.columns.map((one) => `${Math.max(3.7, 0.6 + 0.42 * one.name.length)}rem`).join(" ");
    this.head = h("div", { class: "head", role: "row" }, this.columns.map((one) => h("span", { role: "columnheader", class: "measured", title: one.title }, one.name)), h("span", { role: "columnheader", class: "number" }, "line"), h("span", { role: "columnheader" }, "source"));
    this.element = h("div", { class: "pane" }, h("div", { class: "tools" }, h("h3", {}, "Source"), this.files.length ? this.choice : null), this.note,
      !this.files.length ? null : h("div", { class: "code source-code", role: "table", "aria-label": "Source", style: { "--measures": widths || "0" } },
        this.head, this.view));
    if (this.files.length) this.show(this.file);
    else this.note.textContent = "The code object has no source lines: compile with -g.";
  }

  /** Show a file: its text, or if that is missing, the lines with instructions. */
  show(file) {
    this.file = file;
    this.choice.value = this.files.indexOf(file);
    const { path, lines, note } = this.sources[file];
    const known = this.code.source.line.filter((_, at) => this.code.source.file[at] === file);
    const last = known.reduce((most, one) => Math.max(most, one), 0);
    this.rows = lines && last <= lines.length ? lines.map((text, at) => [at + 1, text]) : known.map((line) => [line, ""]);
    this.note.textContent = lines && last > lines.length ? `${path} has ${amount(lines.length, "line")} now, but the code refers to line ${exact(last)}: it is another version and not shown.` : note ? `${path}: ${note}` : path;
    const widest = this.rows.reduce((most, [, text]) => Math.max(most, text.length), 0);
    this.space.style.minWidth = `calc(${widest + 2}ch + 3rem + ${this.columns.length} * 3.9rem)`;
    this.space.style.height = `${this.rows.length * ROW}px`;
    this.rowOf = new Map(this.rows.map(([line], row) => [line, row]));
    this.view.scrollTop = 0;
    this.draw();
  }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  draw() {
    const first = Math.max(0, Math.floor(this.view.scrollTop / ROW) - 8), last = Math.min(this.rows.length, first + Math.ceil((this.view.clientHeight || 700) / ROW) + 16);
    const shown = [];
    for (let row = first; row < last; row++) shown.push(this.row(row));
    this.space.replaceChildren(...shown);
  }

  row(number) {
    const [line, text] = this.rows[number], at = this.of.get(`${this.file}:${line}`), style = { top: `${number * ROW}px` };
    const about = notes.atLine(this.file, line);
    const share = at === undefined || !this.columns[0]?.share ? 0 : this.columns[0].share(at);
    style["--share"] = `${(100 * share).toFixed(2)}%`;
    if (share) style["--warmth"] = (0.22 * share).toFixed(3);
    return h("div", { class: `row${share ? " hot" : ""}${at === undefined ? " idle" : ""}${line === this.marked ? " at" : ""}`, role: "row", style, "data-line": line, click: at === undefined ? null : () => this.pick(at) },
      this.columns.map((one, column) => h("span", { role: "cell", class: column || !one.share ? "measured" : "measured heat" }, at === undefined ? "" : one.get(at))),
      h("span", { role: "cell", class: "number quiet", title: about.map((one) => one.text).join("\n\n") || null }, `${about.length ? "✎" : ""}${line}`), h("span", { role: "cell", class: "text" }, text || (at === undefined ? "" : "(text not on this page)"), ...about.map((one) => h("span", { class: "written", title: one.text }, `  ✎ ${one.text.split("\n")[0]}`))));
  }

  /** Mark a line, by its position among the lines with code, and bring it into view. */
  mark(at) {
    if (at < 0) { this.marked = null; return this.draw(); }
    const file = this.code.source.file[at];
    if (file !== this.file) this.show(file);
    this.marked = this.code.source.line[at];
    const top = this.rowOf.get(this.marked) * ROW, { scrollTop, clientHeight } = this.view;
    if (top < scrollTop || top + 2 * ROW > scrollTop + clientHeight) this.view.scrollTop = Math.max(0, top - clientHeight / 3);
    this.draw();
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.target !== this.view) return;
    event.preventDefault();
    for (let row = (this.rowOf.get(this.marked) ?? -1) + step; row >= 0 && row < this.rows.length; row += step) {
      const at = this.of.get(`${this.file}:${this.rows[row][0]}`);
      if (at !== undefined) return this.pick(at);
    }
  }
}

const fileName = (path) => path.split("/").pop();
