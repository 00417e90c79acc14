"use strict";
// One kernel: its costs and their causes, registers, blocks, graph and listing.

const KINDS = ["vector", "matrix", "memory", "lds", "scalar", "scalar memory", "control", "wait", "other"];
const KIND_COLOURS = ["--c0", "--c4", "--c3", "--c1", "--c2", "--c7", "--c5", "--other", "--other"];
let opened = null;

async function openKernel(data, sources, number, target = null) {
  const kernel = data.kernels[number];
  if (!kernel) return;
  byId("kernel").hidden = false;
  byId("kernel-title").textContent = kernel.name;
  const coded = data.coded.includes(number);
  facts(kernel);
  for (const id of ["kernel-mix", "kernel-blocks", "kernel-graph", "kernel-code", "kernel-shapes"]) byId(id).replaceChildren();
  byId("kernel-why").textContent = coded ? "" : noCode(kernel);
  opened = { number, listing: null, noted: () => drawNotes(number) };
  opened.noted();
  drawShapes(data, number);
  if (!coded) return;
  const mine = opened, code = await unpack(`code-${number}`);
  if (mine !== opened) return; // another kernel was opened meanwhile
  const pickLine = (at, from) => { // a line, by its position among the kernel's lines
    source.mark(at);
    listing.mine(at < 0 ? null : at);
    if (from === undefined && at >= 0) listing.goTo(listing.rowOf.get(dearest(code, at)));
  };
  const pickInstruction = (at) => { listing.marked = listing.rowOf.get(at); pickLine(code.place[at], at); };
  const listing = new Listing(kernel, code, sources, pickInstruction), source = new Source(kernel, code, sources, pickLine);
  const shares = blockShares(code);
  why(kernel, code, shares);
  mix(code);
  const go = (block) => { mark(block); graph.mark(block, true); listing.goTo(listing.rowOfBlock.get(block)); };
  const mark = blockTable(code, shares, listing, (block) => { graph.mark(block, true); listing.goTo(listing.rowOfBlock.get(block)); });
  const graph = drawGraph(byId("kernel-graph"), code, shares, (block) => { mark(block); graph.mark(block); listing.goTo(listing.rowOfBlock.get(block)); });
  listing.onBlock = go;
  const all = metrics(kernel, code), chart = profile(listing);
  const choice = h("select", { id: "metric", change: () => show(all[choice.value]) }, all.map((one, value) => h("option", { value }, one.name)));
  const scale = h("span", { class: "quiet" });
  const show = (metric) => {
    listing.setMetric(metric);
    chart.make();
    const sum = metric.values.reduce((total, one) => total + (one ?? 0), 0);
    scale.textContent = `0 to ${exact(listing.most)}${metric.sum ? `, ${exact(sum)} in total` : ""}`;
  };
  byId("kernel-code").append(
    h("div", { class: "tools" }, h("h3", {}, "Source and instructions"), h("label", { for: "metric" }, "coloured by"), choice, scale,
      h("span", { class: "push quiet" }, amount(code.address.length, "instruction"))), chart.element, legend(listing),
    h("div", { class: source.files.length ? "panes" : null }, source.element, h("div", { class: "pane" }, h("div", { class: "tools" }, h("h3", {}, "Instructions")), listing.element)));
  show(all[0]);
  opened.listing = listing;
  opened.noted = () => { drawNotes(number); source.draw(); };
  opened.line = () => (source.marked === null ? "" : `${notes.nameOf(source.file)}:${source.marked}`);
  opened.goTo = (to) => {
    const line = to.place ? source.of.get(to.place.join(":")) : undefined;
    if (to.at !== null && to.at !== undefined && listing.rowOf.has(to.at)) { pickInstruction(to.at); listing.goTo(listing.rowOf.get(to.at)); }
    else if (line !== undefined) pickLine(line);
  };
  source.draw();
  listing.draw();
  const hottest = shares.indexOf(Math.max(...shares));
  if (hottest >= 0 && shares[hottest]) {
    mark(hottest);
    graph.mark(hottest, true);
    listing.goTo(listing.rowOfBlock.get(hottest));
    const first = code.block.indexOf(code.blocks.block[hottest]), { executed } = code.source;
    const lines = [...new Set(code.place.filter((_, at) => code.block[at] === code.blocks.block[hottest]))].filter((one) => one >= 0);
    if (first >= 0 && lines.length) { const line = lines.reduce((best, one) => (executed && executed[one] > executed[best] ? one : best)); source.mark(line); listing.mine(line); }
  }
  if (target) opened.goTo(target);
}

function drawNotes(number) {
  const about = notes.about(number);
  byId("kernel-notes").hidden = !about.length;
  byId("kernel-notes").replaceChildren(...about.map((one) => notes.item(one, false)));
}

/** The first of the most executed instructions of a line. */
function dearest(code, line) {
  let best = -1;
  code.place.forEach((one, at) => { if (one === line && (best < 0 || (code.executions?.[at] ?? 0) > (code.executions?.[best] ?? 0))) best = at; });
  return best;
}

function legend(listing) {
  const sites = listing.code.sites.reduce((all, one) => all | one, 0);
  const mark = (sign, name, says) => h("li", {}, h("span", { class: `mono ${name}` }, sign), ` ${says}`);
  return h("ul", { class: "legend", "aria-label": "Legend" }, h("li", {}, h("span", { class: "scale" }), "none to most"), h("li", {}, h("span", { class: "swatch chosen" }), "of the selected line"),
    ...(sites & 1 ? [mark("●", "", "has a hook")] : []), ...(sites & 2 ? [mark("○", "", "counted")] : []), ...(sites & 4 ? [mark("✕", "bad", "hook refused")] : []));
}

function noCode(kernel) {
  if (kernel.instructions) return "Its listing is not on this page, which has room only for more costly kernels.";
  return kernel.reason ? `It was not instrumented: ${kernel.reason}.` : "It was not passed to tools, so its code was not recorded.";
}

/** The share of each block in all executed instructions; null if nothing was counted. */
function blockShares(code) {
  const { blocks, executions } = code;
  if (!executions) return blocks.block.map(() => null);
  const position = new Map(blocks.block.map((block, at) => [block, at])), sums = blocks.block.map(() => 0);
  let total = 0;
  code.block.forEach((block, at) => { sums[position.get(block)] += executions[at] ?? 0; total += executions[at] ?? 0; });
  return sums.map((one) => (total ? one / total : 0));
}

function weights(code) {
  const sums = new Map();
  code.kind.forEach((kind, at) => sums.set(kind, (sums.get(kind) ?? 0) + (code.executions ? code.executions[at] ?? 0 : 1)));
  return KINDS.filter((kind) => sums.get(kind)).map((kind) => [kind, sums.get(kind)]);
}

function why(kernel, code, shares) {
  const parts = [], hottest = shares.indexOf(Math.max(...shares.map((one) => one ?? -1)));
  if (code.executions && shares[hottest]) {
    const depth = code.blocks.depth[hottest];
    const where = `${code.blocks.title[hottest] ? `${code.blocks.title[hottest]}, ` : ""}block ${code.blocks.block[hottest]}${depth ? `, in ${depth === 1 ? "a loop" : `${depth} nested loops`}` : ""}`;
    if (shares[hottest] >= 0.1) parts.push(`${percent(shares[hottest], 1)} of its executed instructions are in ${where}.`);
    else parts.push(`Its cost is spread over ${amount(shares.filter(Boolean).length, "block")}: ${percent(shares[hottest], 1)} of the executed instructions are in ${where}, which has the most.`);
  }
  const kinds = weights(code).sort((one, other) => other[1] - one[1]), total = kinds.reduce((sum, one) => sum + one[1], 0);
  if (kinds.length) parts.push(`${percent(kinds[0][1], total)} ${code.executions ? "of the executed instructions" : "of the code"} is ${kinds[0][0]}${kinds[1] ? `, ${percent(kinds[1][1], total)} ${kinds[1][0]}` : ""}.`);
  if (kernel.lanes) parts.push(`${percent(kernel.lanes, kernel.vector_executed * kernel.wave_size)} of the lanes were active in vector instructions.`);
  const live = Math.max(...code.live_vgprs);
  parts.push(`At most ${live} of ${kernel.vgprs} vector registers are live at once.`);
  byId("kernel-why").textContent = parts.join(" ");
}

function mix(code) {
  const kinds = weights(code), total = kinds.reduce((sum, one) => sum + one[1], 0);
  const shade = (kind) => `var(${KIND_COLOURS[KINDS.indexOf(kind)]})`;
  byId("kernel-mix").append(
    h("div", { class: "mix", "aria-hidden": "true" }, kinds.map(([kind, sum]) => h("span", { style: { width: `${(100 * sum) / total}%`, background: shade(kind) } }))),
    h("ul", { class: "legend", "aria-label": "Kinds of instructions" }, kinds.map(([kind, sum]) => h("li", {}, h("span", { class: "swatch", style: { background: shade(kind) } }), `${kind} ${percent(sum, total)}`))));
}

function facts(kernel) {
  const change = (before, after) => (after !== null && after !== undefined && after !== before ? `${exact(before)} → ${exact(after)}` : exact(before));
  const rows = [
    ["symbol", kernel.symbol !== kernel.name ? kernel.symbol : ""], ["target", `${kernel.target}, wave${kernel.wave_size}`],
    ["vector registers", change(kernel.vgprs, kernel.patched_vgprs)], ["scalar registers", change(kernel.sgprs, kernel.patched_sgprs)],
    ["waves per SIMD", change(kernel.waves_per_simd, kernel.patched_waves_per_simd)], ["static LDS", `${exact(kernel.group_segment)} B`], ["scratch", `${exact(kernel.private_segment)} B per lane`],
    ["instructions", kernel.instructions ? `${exact(kernel.instructions)}${kernel.added_instructions ? ` + ${exact(kernel.added_instructions)}` : ""}` : ""], ["code", kernel.code_bytes ? `${change(kernel.code_bytes, kernel.patched_bytes)} B` : ""],
    ["launches", `${exact(kernel.launches)}, ${exact(kernel.instrumented)} instrumented`], ["sites", kernel.requested_sites ? `${exact(kernel.sites)} of ${exact(kernel.requested_sites)}` : ""], ["object", kernel.object]];
  byId("kernel-facts").replaceChildren(...rows.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", { title: String(value) }, cut(String(value), 80)))));
  byId("kernel-facts").title = "a → b: original and instrumented kernel";
}

function blockTable(code, shares, listing, go) {
  const { blocks } = code, counted = code.executions !== null, most = Math.max(...shares);
  const rows = blocks.block.map((_, at) => at);
  const lanes = (at) => {
    const first = code.block.findIndex((block, place) => block === blocks.block[at] && code.lanes[place] !== null);
    return first >= 0 && code.executions && code.executions[first] ? code.lanes[first] / code.executions[first] : null;
  };
  const columns = [
    { name: "block", get: (at) => blocks.block[at], right: true },
    ...(blocks.title.some(Boolean) ? [{ name: "lines", get: (at) => blocks.title[at], show: (value) => h("span", { class: "mono" }, value) }] : []),
    ...(counted ? [{ name: "executed here", get: (at) => shares[at], right: true, show: (value) => bar(value, most, percent(value, 1)) }, { name: "entered", get: (at) => listing.entered(at), right: true, show: exact }] : []),
    ...(counted && code.lanes ? [{ name: "lanes", title: "Mean active lanes of a wave at its first vector instruction", get: lanes, right: true, show: (value) => (value === null ? "" : value.toFixed(1)) }] : []),
    { name: "instr", get: (at) => blocks.instructions[at], right: true, show: exact }, { name: "loops", title: "Loops around it", get: (at) => blocks.depth[at], right: true },
    { name: "left by", get: (at) => blocks.exit[at] }, ...(new Set(blocks.function).size > 1 ? [{ name: "function", get: (at) => blocks.function[at], show: (value) => cut(value, 40) }] : [])];
  const table = sortable(columns, rows, { sort: counted ? columns.findIndex((one) => one.name === "executed here") : 0, pick: (at) => { table.mark(at); go(at); }, key: (at) => at, label: "Blocks" });
  byId("kernel-blocks").append(h("div", { class: "tools" }, h("h3", {}, "Blocks")), table.element);
  return table.mark;
}
