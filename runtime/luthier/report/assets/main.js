"use strict";
// Assembles the page.

function drawHead(data) {
  const { summary } = data, span = summary.began_ns && summary.ended_ns ? duration(summary.ended_ns - summary.began_ns) : "";
  byId("command").textContent = commandLine(summary.command);
  byId("command").title = commandLine(summary.command);
  document.title = `${summary.command[0]?.split("/").pop() ?? "run"} · Luthier`;
  const tools = summary.tools.map((one) => one.tool).join(", ");
  byId("about").textContent = [(summary.devices ?? []).join(", "), tools, data.options, span, summary.exit_code ? `exit code ${summary.exit_code}` : ""].filter(Boolean).join(" · ");
  if (summary.faults.length) {
    byId("problem").hidden = false;
    byId("problem").append(...summary.faults.slice(0, 20).map((one) => h("div", {}, String(one))));
  }
}

/** Time is a cost only on a GPU: emulation time shows the length of the run, not the cost of a kernel. */
function timeTile(data) {
  const time = data.kernels.reduce((total, one) => total + (one.time ?? 0), 0);
  if (!data.emulated) return ["Time on devices", duration(time) || "0", "including instrumentation"];
  return data.kernels.some((one) => one.time !== null) ? ["Emulation time", duration(time), "not of a GPU; excluding first launches"] : null;
}

function drawTotals(data) {
  const sum = (name) => data.kernels.reduce((total, one) => total + (one[name] ?? 0), 0);
  const launches = sum("launches"), instrumented = sum("instrumented"), executed = sum("executed"), requested = sum("requested_sites");
  const possible = data.kernels.reduce((total, one) => total + (one.lanes ? one.vector_executed * one.wave_size : 0), 0);
  const tiles = [
    ["Kernels", exact(data.kernels.length), ""],
    ["Launches", short(launches), launches && data.summary.tools.length ? `${percent(instrumented, launches)} instrumented` : ""],
    timeTile(data),
    executed ? ["Instructions executed", short(executed), "by waves"] : null,
    possible ? ["Lanes active", percent(sum("lanes"), possible), "in vector instructions"] : null,
    requested ? ["Sites", percent(sum("sites"), requested), `${short(sum("sites"))} of ${short(requested)}`] : null];
  byId("totals").append(...tiles.filter(Boolean).map(([name, value, note]) => h("div", {}, h("dt", {}, name), h("dd", {}, value, " ", h("small", {}, note)))));
}

function drawKernels(data, open) {
  if (!data.kernels.length) {
    byId("kernel-table").append(h("p", { class: "notice" }, "No kernel was launched. If the program should have launched one, check that it found the devices: luthier doctor lists what this machine has."));
    return () => {};
  }
  const has = (name) => data.kernels.some((one) => one[name]);
  const most = (name) => Math.max(...data.kernels.map((one) => one[name] ?? 0)), all = (name) => data.kernels.reduce((total, one) => total + (one[name] ?? 0), 0);
  const costs = [["executed", "executed", short, "Instructions executed by waves, over all launches"], ...(data.emulated ? [] : [["time", "time", duration, "Time on the device, over launches with known times"]])].filter(([name]) => has(name))
    .map(([key, name, show, title]) => ({ name, title, right: true, get: (row) => row[key], show: (value, row) => (value === null ? "" : bar(value, most(key), h("span", { title: exact(value) }, show(value)), percent(value, all(key)))) }));
  const columns = [
    { name: "kernel", long: false, get: (row) => row.name, show: (value, row) => h("a", { class: "open mono", href: `#kernel-${row.number}`, click: (event) => event.preventDefault() }, cut(value)), hint: (row) => `${row.name}\n${row.object ?? ""}` },
    ...costs,
    { name: "launches", right: true, get: (row) => row.launches, show: exact },
    ...(data.kernels.some((one) => Object.keys(one.units).length) ? [{ name: "units", title: "Executed instructions by unit", get: (row) => Object.keys(row.units).length, show: (_, row) => unitBar(row.units) }] : []),
    ...(has("lanes") ? [{ name: "lanes", title: "Share of lanes active in vector instructions", right: true, get: (row) => (row.lanes ? row.lanes / (row.vector_executed * row.wave_size) : null), show: (value) => (value === null ? "" : percent(value, 1)) }] : []),
    { name: "VGPRs", right: true, get: (row) => row.vgprs }, { name: "SGPRs", right: true, get: (row) => row.sgprs },
    { name: "waves", title: "Maximum waves per SIMD, by registers and static LDS", right: true, get: (row) => row.waves_per_simd },
    { name: "LDS", right: true, get: (row) => row.group_segment, show: short },
    ...(new Set(data.kernels.map((one) => one.target)).size > 1 ? [{ name: "target", get: (row) => row.target }] : []),
    ...(!data.summary.tools.length || !data.kernels.some((one) => one.requested_sites || one.reason) ? [] : [{ name: "instrumented", right: true, get: (row) => (row.requested_sites ? row.sites / row.requested_sites : null), show: (value, row) => h("span", { class: row.covered ? "good" : row.reason && !row.skipped ? "bad" : "quiet", title: row.reason ?? "" }, row.requested_sites ? `${exact(row.sites)}/${exact(row.requested_sites)} sites` : row.skipped ? "not selected" : row.reason ? "no" : "") }])];
  const table = sortable(columns, data.kernels, { sort: costs.length ? 1 : columns.findIndex((one) => one.name === "launches"), pick: (row) => open(row.number), key: (row) => row.number, label: "Kernels" });
  byId("kernel-table").append(table.element);
  return table.mark;
}

/** As many tables of one tool with the same columns are shown one by one; more are one table. */
const ALIKE = 8;

function drawResults(data) {
  if (!data.tables.length && !data.tables_left_out) return;
  byId("results").hidden = false;
  const names = new Map(data.kernels.map((one) => [one.symbol, one.name]));
  const groups = new Map(), title = (table) => names.get(table.title) ?? String(table.title);
  const key = (table) => JSON.stringify([table.tool, table.columns]);
  for (const table of data.tables) groups.set(key(table), [...(groups.get(key(table)) ?? []), table]);
  const joined = (same) => ({ tool: same[0].tool, title: amount(same.length, "table"), columns: [same.every((table) => names.has(table.title)) ? "kernel" : "table", ...same[0].columns], rows: same.flatMap((table) => table.rows.map((row) => [title(table), ...row])), parts: same });
  const shown = data.tables.flatMap((table) => { const same = groups.get(key(table)); return same.length <= ALIKE ? [table] : same[0] === table ? [joined(same)] : []; });
  byId("tables").append(...shown.map((table) => {
    const element = h("details", { class: table.columns.length > 5 ? "wide" : null, open: table.rows.length <= 12 && shown.length <= 12 }, h("summary", {}, h("strong", {}, table.tool), ` ${cut(title(table), 90)} `, h("span", { class: "quiet" }, amount(table.rows.length, "row"))), plainTable(table));
    for (const part of table.parts ?? [table]) part.element = element;
    return element;
  }));
  if (data.tables_left_out) byId("tables").append(h("p", { class: "notice" }, `${exact(data.tables_left_out)} more tables are in the run folder, but not on this page.`));
}

function drawCoverage(data) {
  const { tools, refusals, more } = data.coverage, place = byId("coverage-tables");
  if (!Object.keys(tools).length) {
    place.append(h("p", { class: "notice" }, "Tools requested no hooks and no counts."));
    return;
  }
  const status = (name) => ({ name, right: true, get: (row) => row[1][name] ?? 0, show: exact });
  place.append(sortable([{ name: "tool", get: (row) => row[0] }, status("patched"), status("counted"), status("refused")], Object.entries(tools), { label: "Sites by tool", narrow: true }).element);
  if (!refusals.length) return;
  place.append(h("h3", {}, "Refused"), sortable([
    { name: "sites", right: true, get: (row) => row[5], show: exact }, { name: "kernel", get: (row) => data.kernels[row[0]]?.name ?? "", show: (value) => cut(value, 50) }, { name: "tool", get: (row) => row[1] }, { name: "hook", get: (row) => row[2] },
    { name: "kind", get: (row) => row[3] }, { name: "first at", get: (row) => row[6], show: hex }, { name: "reason", long: true, get: (row) => row[4] }], refusals, { label: "Refused sites" }).element);
  if (more) place.append(h("p", { class: "notice" }, `${exact(more)} more reasons are in the table of sites.`));
}

function drawProcesses(data) {
  const rows = data.summary.processes.filter((one) => one && typeof one === "object");
  if (!rows.length) byId("process-table").append(h("p", { class: "notice" }, "No process of the program used a device."));
  else byId("process-table").append(sortable([
    { name: "process", right: true, get: (row) => row.process }, { name: "parent", right: true, get: (row) => row.parent ?? null }, { name: "rank", right: true, get: (row) => row.rank ?? null },
    { name: "launches", right: true, get: (row) => row.launches ?? null, show: exact }, { name: "kernels", right: true, get: (row) => row.kernels ?? null, show: exact }, { name: "command", long: true, get: (row) => row.command ?? "" }], rows, { label: "Processes" }).element);
}

async function main() {
  const data = await unpack("run"), sources = await unpack("sources");
  data.notes = await unpack("notes");
  data.kernels.forEach((kernel, number) => { kernel.number = number; });
  let mark = () => {};
  const open = async (number, target = null, jump = true) => {
    if (number === undefined || !data.kernels[number]) return;
    mark(number);
    if (target && opened?.number === number && opened.goTo) opened.goTo(target);
    else await openKernel(data, sources, number, target);
    if (jump) { byId(target ? "kernel-code" : "kernel").scrollIntoView(); try { history.replaceState(null, "", `#kernel-${number}`); } catch { /* not for files in some browsers */ } }
  };
  notes = new Notes(data, sources, open);
  drawHead(data);
  drawTotals(data);
  notes.start();
  drawFindings(data, sources, open);
  drawHot(data, sources, open);
  mark = drawKernels(data, open);
  drawProjection(data, open);
  drawTimeline(data, open);
  drawFlame(data, open);
  drawResults(data);
  drawCoverage(data);
  drawProcesses(data);
  startSearch(data, sources, open);
  const asked = /^#kernel-(\d+)$/.exec(location.hash);
  const projected = data.kernels.map((_, number) => data.projection.kernels.filter((row) => row.kernel === number).reduce((sum, row) => sum + row.time_us, 0));
  const costs = data.kernels.map((one, number) => [one.executed ?? 0, projected[number], (data.emulated ? one.launches : one.time) ?? 0]);
  const dearest = costs.reduce((best, one, at) => (best < 0 || (one.find((value, key) => value !== costs[best][key]) ?? -1) > (costs[best].find((value, key) => value !== one[key]) ?? -1) ? at : best), -1);
  if (dearest >= 0) await open(asked ? Number(asked[1]) : dearest, null, Boolean(asked));
  performance.mark("luthier-drawn");
  document.documentElement.dataset.ready = "true";
}

main().catch((problem) => {
  byId("problem").hidden = false;
  byId("problem").textContent = `This page cannot be drawn: ${problem.message}`;
  throw problem;
});
