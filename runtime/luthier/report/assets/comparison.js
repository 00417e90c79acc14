"use strict";
// The page of two runs: costs of kernels, blocks with different numbers of executions, and other differences.

/** The change of a number from the other run to this one as text: +12.5 %, new, gone. */
function change(run, against) {
  if (against === null || against === undefined) return run === null || run === undefined ? "" : "new";
  if (run === null || run === undefined) return "gone";
  if (run === against) return "=";
  if (!against) return `+${short(run)}`;
  const share = (100 * (run - against)) / Math.abs(against), size = Math.abs(share);
  return `${share > 0 ? "+" : "−"}${size < 0.1 ? "<0.1" : size < 1000 ? size.toFixed(1) : exact(Math.round(size))} %`;
}

/** A change as an element; an increase is worse if `worse` is 1, better if -1, neutral if 0. */
function changed(run, against, worse = 1) {
  const text = change(run, against), sign = Math.sign((run ?? 0) - (against ?? 0)) * worse;
  return h("span", { class: text === "=" ? "quiet" : text === "new" || text === "gone" ? null : sign > 0 ? "bad" : sign < 0 ? "good" : null }, text);
}

/** Rows of a table of differences by key: {names, numbers: name to [run, against]}. */
function grouped(table, keys) {
  const found = new Map();
  for (const row of table.rows) {
    const names = row.slice(0, keys), key = JSON.stringify(names);
    if (!found.has(key)) found.set(key, { names, numbers: {} });
    found.get(key).numbers[row[keys]] = [row[keys + 1], row[keys + 2]];
  }
  return [...found.values()];
}

const COSTS = [["executed", "executed", short, 1], ["time_ns", "time", duration, 1], ["mean_ns", "mean time", (value) => duration(value === null ? null : Math.round(value)), 1],
  ["lanes active", "lanes active", (value) => (value === null || value === undefined ? "" : percent(value, 1)), -1]];
const FACTS = [["launches", "launches", 0], ["vgprs", "VGPRs", 1], ["sgprs", "SGPRs", 1], ["waves_per_simd", "waves per SIMD", -1], ["group_segment", "LDS", 1], ["private_segment", "scratch", 1], ["instructions", "instructions", 0]];

function drawTotals(kernels) {
  const sum = (what, which) => kernels.reduce((total, one) => total + (one.numbers[what]?.[which] ?? 0), 0);
  const tiles = [["Instructions executed", "executed", short], ["Launches", "launches", short]];
  if (kernels.some((one) => one.numbers.time_ns)) tiles.splice(1, 0, ["Time on devices", "time_ns", duration]);
  byId("totals").append(h("div", {}, h("dt", {}, "Kernels"), h("dd", {}, exact(kernels.length))), ...tiles.map(([name, what, show]) => {
    const [run, against] = [sum(what, 0), sum(what, 1)];
    return h("div", {}, h("dt", {}, name), h("dd", {}, show(run) || "0", " ", h("small", {}, changed(run, against, what === "launches" ? 0 : 1), ` from ${show(against) || "0"}`)));
  }));
}

function drawKernels(kernels) {
  if (!kernels.length) return byId("kernel-table").append(h("p", { class: "notice" }, "Neither run launched a kernel."));
  const has = (what) => kernels.some((one) => (one.numbers[what] ?? []).some((value) => value));
  const at = (what, which) => (row) => row.numbers[what]?.[which] ?? null;
  const by = (what) => (row) => { const [run, against] = row.numbers[what] ?? [null, null]; return Math.abs((run ?? 0) - (against ?? 0)); };
  const columns = [{ name: "kernel", get: (row) => row.names[0], show: (value) => h("span", { class: "mono" }, cut(value)), hint: (row) => row.names[0] }];
  for (const [what, name, show, worse] of COSTS.filter(([what]) => has(what)))
    columns.push({ name, title: "In this run", right: true, get: at(what, 0), show }, { name: "against", title: `${name} in the other run`, right: true, get: at(what, 1), show },
      { name: "change", title: `Of ${name}; sorted by its size`, right: true, get: by(what), show: (_, row) => changed(at(what, 0)(row), at(what, 1)(row), worse) });
  for (const [what, name, worse] of FACTS.filter(([what]) => has(what)))
    columns.push({ name, right: true, get: at(what, 0), show: (_, row) => {
      const [run, against] = [at(what, 0)(row), at(what, 1)(row)];
      return run === against ? h("span", {}, short(run)) : h("span", {}, `${short(against) || "–"} → ${short(run) || "–"} `, changed(run, against, worse));
    } });
  if (has("emulation_ns")) columns.push({ name: "emulation time", title: "Of the emulator, not of a GPU, excluding first launches: not compared", right: true, get: at("emulation_ns", 0), show: (_, row) => [1, 0].map((which) => duration(at("emulation_ns", which)(row)) || "–").join(", ") });
  if (new Set(kernels.map((one) => one.names[1])).size > 1) columns.push({ name: "target", get: (row) => row.names[1] });
  byId("kernel-table").append(sortable(columns, kernels, { sort: has("executed") ? 3 : null, label: "Kernels" }).element);
}

function drawBlocks(data) {
  const place = byId("block-table");
  if (data.blocks.length) {
    const targets = new Set(data.blocks.map((row) => row.target)).size > 1;
    const by = (row) => (row.run?.executed ?? 0) - (row.against?.executed ?? 0);
    const lines = (row) => row.run?.lines || row.against?.lines;
    const bothLines = (row) => (row.run?.lines && row.against?.lines && row.run.lines !== row.against.lines ? `${row.against.lines} → ${row.run.lines}` : lines(row));
    const most = data.blocks.reduce((top, row) => Math.max(top, Math.abs(by(row))), 0);
    place.append(sortable([
      { name: "kernel", get: (row) => row.kernel, show: (value) => h("span", { class: "mono" }, cut(value, 50)), hint: (row) => row.kernel },
      ...(targets ? [{ name: "target", get: (row) => row.target }] : []),
      { name: "block", right: true, get: (row) => row.run?.number ?? null },
      { name: "at", right: true, get: (row) => row.run?.address ?? null, show: hex },
      { name: "other's block", right: true, get: (row) => row.against?.number ?? null },
      { name: "other's at", right: true, get: (row) => row.against?.address ?? null, show: hex },
      ...(data.blocks.some(lines) ? [{ name: "lines", title: "In this run, and in the other one if they differ", get: lines, show: (_, row) => h("span", { class: "mono" }, bothLines(row)) }] : []),
      { name: "begins with", get: (row) => row.first, show: (value) => h("span", { class: "mono" }, cut(value, 50)) },
      { name: "entered", right: true, get: (row) => row.run?.executions ?? null, show: exact },
      { name: "against", right: true, get: (row) => row.against?.executions ?? null, show: exact },
      { name: "instructions", title: "Difference in executed instructions", right: true, most, get: (row) => Math.abs(by(row)), show: (_, row) => (by(row) ? (by(row) > 0 ? "+" : "−") + exact(Math.abs(by(row))) : "=") },
      { name: "change", right: true, get: (row) => (row.against?.executions ? (row.run?.executions ?? 0) / row.against.executions : null), show: (_, row) => changed(row.run?.executions ?? null, row.against?.executions ?? null) }], data.blocks, { label: "Blocks" }).element);
  }
  const notes = [data.blocks.length ? "" : "All blocks that both runs counted ran equally often.", `${amount(data.blocks_same, "block")} ran equally often.`, data.blocks_left_out ? `${exact(data.blocks_left_out)} more blocks differ by less.` : ""];
  place.append(h("p", { class: "quiet" }, notes.filter(Boolean).join(" ")));
  if (data.not_compared.length) place.append(h("h3", {}, "Not compared by block"), sortable([
    { name: "kernel", get: (row) => row[0], show: (value) => cut(value) }, { name: "target", get: (row) => row[1] }, { name: "reason", long: true, get: (row) => row[2] }], data.not_compared, { label: "Not compared", narrow: true }).element);
}

function drawOthers(tables) {
  for (const table of tables) {
    const keys = table.columns.length - 5, rows = table.rows.filter((row) => row[row.length - 2] !== 0), same = table.rows.length - rows.length;
    if (!table.rows.length) continue;
    const columns = table.columns.slice(0, keys).map((name, at) => ({ name, get: (row) => row[at], show: (value) => cut(String(value), 50), hint: (row) => String(row[at]) }));
    columns.push({ name: "run", right: true, get: (row) => row[keys + 1], show: exact }, { name: "against", right: true, get: (row) => row[keys + 2], show: exact },
      { name: "change", right: true, get: (row) => Math.abs((row[keys + 1] ?? 0) - (row[keys + 2] ?? 0)), show: (_, row) => changed(row[keys + 1], row[keys + 2], 0) });
    byId("other-tables").append(h("h3", {}, `${table.title}: ${exact(rows.length)} differ, ${exact(same)} equal`), ...(rows.length ? [sortable(columns, rows, { label: table.title }).element] : []));
  }
  if (!byId("other-tables").children.length) byId("others").hidden = true;
}

async function main() {
  const data = await unpack("comparison");
  byId("runs").append(...["This run", "Against"].map((name, at) => h("div", {}, h("dt", {}, name), h("dd", {}, h("code", {}, commandLine(data.commands[at])), " ", h("span", { class: "quiet" }, data.paths[at]), data.tools[at].length ? h("span", { class: "quiet" }, ` under ${data.tools[at].join(", ")}`) : ""))));
  byId("tools-differ").hidden = JSON.stringify(data.tools[0]) === JSON.stringify(data.tools[1]);
  const [kernels, ...others] = data.tables, both = grouped(kernels, 2);
  drawTotals(both);
  drawKernels(both);
  drawBlocks(data);
  drawOthers(others);
  document.documentElement.dataset.ready = "true";
}

main().catch((problem) => {
  byId("problem").hidden = false;
  byId("problem").textContent = `This page cannot be drawn: ${problem.message}`;
  throw problem;
});
