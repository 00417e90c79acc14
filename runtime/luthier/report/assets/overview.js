"use strict";
// The beginning of the page: errors and losses, and the most costly source lines.

/** A link to a line, or to the kernel if the line is unknown. */
function placeLink(data, sources, kernel, place, at, open) {
  const name = place ? `${fileName(sources[place[0]].path)}:${place[1]}` : at === null ? "kernel" : "code";
  return h("a", { class: "mono place", href: `#kernel-${kernel}`, title: place ? sources[place[0]].path : data.kernels[kernel].name, click: (event) => { event.preventDefault(); event.stopPropagation(); open(kernel, { place, at }); } }, name);
}

/** What the absence of findings means, by the tools that ran. */
function nothingFound(data) {
  const ran = new Set(data.summary.tools.map((one) => one.tool)), measures = ["coalescing", "divergence", "lds_bank_conflicts"];
  const missing = measures.filter((name) => !ran.has(name));
  const clean = `Nothing costs more than its threshold (rules: ${Object.keys(data.rules).join(", ")}).`;
  return missing.length ? `${clean} Not measured, since these tools did not run: ${missing.join(", ")}.` : clean;
}

function drawFindings(data, sources, open) {
  const place = byId("finding-list"), most = data.findings.reduce((top, one) => Math.max(top, one.lost), 0);
  if (!data.findings.length) {
    place.append(h("p", { class: "notice" }, data.coded.length ? nothingFound(data) : "No tool measured code in this run."));
    return;
  }
  const item = (one) => h("li", { class: one.level === "error" ? "wrong" : null },
    h("span", { class: "tag", title: `${data.rules[one.rule].summary}: luthier explain ${one.rule}` }, data.rules[one.rule].label),
    h("span", { class: "says" }, placeLink(data, sources, one.kernel, one.place, one.at, open), " ", h("strong", {}, `${cut(data.kernels[one.kernel].name, 40)}: `), one.text,
      one.advice ? h("span", { class: "advice" }, `${one.advice[0].toUpperCase()}${one.advice.slice(1)}.`) : ""),
    h("span", { class: "cost number", title: one.lost ? `${exact(one.lost)} slots of a wave lost` : "" }, one.lost ? bar(one.lost, most, short(Math.round(one.lost))) : ""));
  const list = h("ol", { class: "findings" }, data.findings.slice(0, 8).map(item));
  place.append(list);
  if (data.findings.length > 8) {
    const more = h("button", { type: "button", click: () => { list.append(...data.findings.slice(8).map(item)); more.remove(); } }, `Show ${exact(data.findings.length - 8)} more`);
    place.append(h("p", { class: "more" }, more));
  }
  place.append(h("p", { class: "quiet note" }, "Ranked by loss in slots of a wave: an instruction with all lanes idle, an unneeded cache line, and a cycle of a bank conflict count one each. The ranking does not predict time."));
}

function drawHot(data, sources, open) {
  const place = byId("hot-list"), { hot } = data;
  if (!hot.lines.length) {
    place.append(h("p", { class: "notice" }, hot.counted ? "The code objects have no source lines: compile with -g." : "No tool counted instructions: run with -t block_profile."));
    return;
  }
  const most = hot.lines[0][3];
  const text = (row) => sources[row[1]].lines?.[row[2] - 1]?.trim() ?? "";
  const table = sortable([
    { name: "line", get: (row) => `${fileName(sources[row[1]].path)}:${row[2]}`, show: (_, row) => placeLink(data, sources, row[0], [row[1], row[2]], null, open) },
    { name: "instructions", right: true, title: "Executed by waves", get: (row) => row[3], show: (value) => bar(value, most, short(value), percent(value, hot.counted)) },
    { name: "units", title: "Executed instructions by unit", get: (row) => Object.keys(row[6]).length, show: (_, row) => unitBar(row[6]) },
    ...(hot.lines.some((row) => row[5] !== null) ? [{ name: "lanes", right: true, title: "Active lanes of a wave", get: (row) => row[5], show: (value) => (value === null ? "" : value.toFixed(1)) }] : []),
    { name: "source", long: true, get: text, show: (value, row) => h("span", { class: "mono text" }, value || data.kernels[row[0]].name), hint: text }],
    hot.lines.slice(0, 40), { sort: 1, pick: (row) => open(row[0], { place: [row[1], row[2]], at: null }), label: "Hot source lines", rows: 8 });
  place.append(table.element, unitLegend());
  if (hot.unknown) place.append(h("p", { class: "quiet note" }, `${percent(hot.unknown, hot.counted)} of the instructions have no source line.`));
}

/** Instructions by unit, as one bar. */
function unitBar(units) {
  const total = Object.values(units).reduce((sum, one) => sum + one, 0);
  const known = KINDS.filter((kind) => units[kind]);
  const say = known.map((kind) => `${kind} ${percent(units[kind], total)}`).join(", ");
  return h("span", { class: "units", role: "img", "aria-label": say || "unknown", title: say }, known.map((kind) => h("span", { style: { width: `${(100 * units[kind]) / total}%`, background: `var(${KIND_COLOURS[KINDS.indexOf(kind)]})` } })));
}

const unitLegend = () => h("ul", { class: "legend" }, KINDS.filter((kind) => kind !== "other").map((kind) => h("li", {}, h("span", { class: "swatch", style: { background: `var(${KIND_COLOURS[KINDS.indexOf(kind)]})` } }), kind === "wait" ? "wait and other" : kind)));

/** Launches of the open kernel by their sizes. */
function drawShapes(data, number) {
  const rows = data.shapes.filter((one) => one[0] === number), place = byId("kernel-shapes"), kernel = data.kernels[number];
  place.replaceChildren();
  if (!rows.length) return;
  const size = (value) => value.join(" × ");
  const whole = data.emulated ? "emulation time" : "time";
  const timed = rows.some((one) => one[7] !== null);
  const waves = rows.every((one) => one[6] !== null) ? rows.reduce((sum, one) => sum + one[6], 0) : null;
  const each = kernel.executed && waves && kernel.instrumented === kernel.launches ? ` ${short(Math.round(kernel.executed / waves))} instructions per wave.` : "";
  place.append(h("div", { class: "tools" }, h("h3", {}, "Launches by size"), h("span", { class: "quiet" }, `Counts of the kernel cover ${kernel.instrumented < kernel.launches ? `${exact(kernel.instrumented)} of ${exact(kernel.launches)} launches, those that were instrumented` : "all of them"}.${each}`)), sortable([
    { name: "work-items", get: (row) => row[1][0] * row[1][1] * row[1][2], show: (_, row) => size(row[1]) }, { name: "of a group", get: (row) => row[2][0] * row[2][1] * row[2][2], show: (_, row) => size(row[2]) },
    { name: "LDS", right: true, get: (row) => row[3], show: exact }, { name: "launches", right: true, get: (row) => row[4], show: exact }, { name: "instrumented", right: true, get: (row) => row[5], show: exact },
    { name: "waves", right: true, get: (row) => row[6], show: (value) => (value === null ? "" : exact(value)) },
    ...(timed ? [{ name: whole, title: data.emulated ? "Of the emulator, not of a GPU; excluding first launches, which compile" : "On the device", right: true, get: (row) => row[7], show: (value) => (value === null ? "" : duration(value)) }] : [])], rows, { sort: 3, label: "Launches by size", narrow: true }).element);
}
