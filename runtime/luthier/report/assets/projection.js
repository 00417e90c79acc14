"use strict";
// Projected times: kernels on GPUs, the units that they keep busy, and a roofline.

const UNIT_COLOURS = { VALU: "--c0", matrix: "--c4", SALU: "--c2", branch: "--c5", LDS: "--c1", "vector memory": "--c3", L1: "--c6", L2: "--c7", "Infinity Cache": "--c5", memory: "--c3", "instruction fetch": "--other" };

function drawProjection(data, open) {
  const { gpus, kernels, notes, left_out } = data.projection, place = byId("projected");
  if (!gpus.length && !left_out.length) return;
  byId("projection").hidden = false;
  if (left_out.length) place.append(h("p", { class: "notice" }, `Not projected: ${left_out.join("; ")}.`));
  if (!gpus.length) return;
  const name = (row) => data.kernels[row.kernel]?.name ?? "unknown kernel";
  const longest = Math.max(...kernels.map((row) => row.time_us));
  const columns = [
    { name: "kernel", get: name, show: (value, row) => h("a", { class: "open mono", href: `#kernel-${row.kernel}`, click: (event) => event.preventDefault() }, cut(value, 50)), hint: name },
    { name: "GPU", get: (row) => gpus[row.gpu].name },
    { name: "launches", right: true, get: (row) => row.launches, show: exact },
    { name: "projected", title: "Time of all launches", right: true, get: (row) => row.time_us, show: (value, row) => bar(value, longest, h("span", { title: row.low_us === row.high_us ? "" : `${duration(1e3 * row.low_us)} to ${duration(1e3 * row.high_us)} by samples` }, duration(1e3 * value))) },
    { name: "bound by", get: (row) => row.bound_by, hint: (row) => (row.next_bound ? `if that fell by ${percent(row.needed_fall, 1)}, ${row.next_bound} would bound it` : "") },
    { name: "units", title: "How busy each unit is, the busiest first", get: (row) => row.units[0]?.[1] / row.time_us, show: (_, row) => busyUnits(row) },
    { name: "occupancy", right: true, get: (row) => row.occupancy, show: (value, row) => h("span", { title: `limited by ${row.limited_by.join(", ")}` }, percent(value, 1)) },
    { name: "operations", right: true, title: "Floating-point and matrix operations", get: (row) => row.operations, show: (value) => short(Math.round(value)) },
    { name: "accessed", right: true, title: "Bytes that instructions read and write outside of LDS and private memory", get: (row) => row.accessed_bytes, show: bytes },
    { name: "beyond L2", right: true, title: "Bytes that L2 does not hold, by the model of caches", get: (row) => row.memory_bytes, show: bytes }];
  const used = [...new Set(kernels.flatMap((row) => row.units.map(([unit]) => unit)))];
  place.append(sortable(columns, kernels, { sort: 3, pick: (row) => open(row.kernel), label: "Projected times" }).element,
    h("ul", { class: "legend" }, used.map((unit) => h("li", {}, h("span", { class: "swatch", style: { background: `var(${UNIT_COLOURS[unit]})` } }), unit))),
    ...gpus.map((gpu) => h("p", { class: "note" }, `${gpu.name}: ${gpu.validation ? `compared with measured times: ${gpu.validation}` : "never compared with measured times"}.`)));
  roofline(data, place, open);
  place.append(h("p", { class: "quiet note" }, "All times are projected by a model, not measured. ", ...notes.map((note) => `${note[0].toUpperCase()}${note.slice(1)}. `)));
}

const bytes = (value) => `${short(Math.round(value))}${value < 10000 ? " " : ""}B`;

/** A bar for each unit, whose length is the share of the time that it is busy. */
function busyUnits(row) {
  const shares = row.units.map(([unit, busy]) => [unit, Math.min(busy / row.time_us, 1)]), say = shares.map(([unit, share]) => `${unit} ${percent(share, 1)}`).join(", ");
  return h("span", { class: "busy", role: "img", "aria-label": say, title: say }, shares.filter(([, share]) => share >= 0.005).slice(0, 5).map(([unit, share]) => h("span", { style: { width: `${Math.max(100 * share, 1)}%`, background: `var(${UNIT_COLOURS[unit]})` } })));
}

/** Roofs of operations, those at one height together. */
function alike(roofs) {
  const names = new Map();
  for (const [name, [rate]] of roofs) names.set(rate, [...(names.get(rate) ?? []), name]);
  return [...names].map(([rate, all]) => [all.length > 1 ? `${all[0]} and ${all.length - 1} more` : all[0], [rate, false]]);
}

/** Operations in a second over operations for each byte beyond L2, below what a GPU can. */
function roofline(data, place, open) {
  const { gpus, kernels } = data.projection, chart = h("div", { class: "chart" }), tip = h("div", { class: "tip", hidden: true }), note = h("p", { class: "quiet note" });
  const choice = h("select", { id: "roofline-gpu", change: () => make() }, gpus.map((gpu, at) => h("option", { value: at }, gpu.name)));
  let plot = null, hits = [];
  const drawn = () => kernels.filter((row) => row.gpu === Number(choice.value) && row.operations > 0 && row.memory_bytes > 0);

  function make() {
    plot?.destroy();
    const gpu = gpus[choice.value], rows = drawn(), roofs = Object.entries(gpu.roofs), rates = alike(roofs.filter(([, one]) => !one[1])), bands = roofs.filter(([, one]) => one[1]);
    const points = rows.map((row) => [row.operations / row.memory_bytes, row.operations / (1e3 * row.time_us), row]);
    const peak = Math.max(1, ...rates.map(([, one]) => one[0])), ridge = peak / Math.min(...bands.map(([, one]) => one[0]));
    const low = 10 ** Math.floor(Math.log10(Math.min(0.1, ...points.map((one) => one[0])))), high = 10 ** Math.ceil(Math.log10(Math.max(10 * ridge, ...points.map((one) => one[0]))));
    const bottom = 10 ** Math.floor(Math.log10(Math.min(peak / 1e4, ...points.map((one) => one[1])))), top = 10 ** Math.ceil(Math.log10(1.5 * peak));
    const missing = kernels.filter((row) => row.gpu === Number(choice.value)).length - rows.length;
    note.textContent = `Operations are ${rows.some((row) => row.sampled) ? "estimated from samples of work-groups, for kernels that were not run whole" : "exact"}, bytes are those beyond L2 by the model of caches. ${missing ? `Not drawn: ${amount(missing, "kernel")} without floating-point operations, or whose data L2 holds.` : ""}`;
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    const ticks = (u, all) => all.map((one) => (Math.abs(Math.log10(one) % 1) < 1e-9 ? short(one) : ""));
    plot = new uPlot({
      width: chart.clientWidth || place.clientWidth, height: 320, legend: { show: false }, padding: [8, 28, 0, 0], cursor: { points: { show: false }, drag: { x: false, y: false } },
      scales: { x: { time: false, distr: 3, range: [low, high] }, y: { distr: 3, range: [bottom, top] } },
      series: [{}, { show: true, stroke: "transparent", points: { show: false } }],
      axes: [{ ...axis, values: ticks, label: "operations for each byte beyond L2", labelSize: 22 }, { ...axis, values: ticks, size: 62, label: "billion operations in a second", labelSize: 22 }],
      hooks: { draw: [draw], setCursor: [hover] },
    }, [[low, high], [bottom, top]], chart);
    chart.append(tip);

    function draw(u) {
      const { ctx } = u, x = (value) => u.valToPos(value, "x", true), y = (value) => u.valToPos(value, "y", true), { left, top: above, width, height } = u.bbox;
      ctx.save();
      ctx.beginPath(); ctx.rect(left, above, width, height); ctx.clip();
      ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
      ctx.lineWidth = 1.5 * devicePixelRatio;
      const line = (from, to, name, at) => {
        const [fromX, fromY, toX, toY] = [x(from[0]), y(from[1]), x(to[0]), y(to[1])];
        ctx.beginPath(); ctx.moveTo(fromX, fromY); ctx.lineTo(toX, toY); ctx.stroke();
        ctx.save(); ctx.translate(...at); ctx.rotate(Math.atan2(toY - fromY, toX - fromX)); ctx.fillText(name, 0, 0); ctx.restore();
      };
      ctx.fillStyle = colour("--quiet");
      ctx.strokeStyle = colour("--c1");
      ctx.textAlign = "left";
      for (const [name, [rate]] of bands) line([low, low * rate], [peak / rate, peak], `${name}: ${short(Math.round(rate))} GB/s`, [x(Math.max(low, bottom / rate)) + 8, y(Math.max(low * rate, bottom)) - 10]);
      ctx.strokeStyle = colour("--c0");
      ctx.textAlign = "right";
      const fastest = Math.max(...bands.map(([, one]) => one[0]));
      for (const [name, [rate]] of rates) line([rate / fastest, rate], [high, rate], `${name}: ${short(Math.round(rate))} Gop/s`, [left + width - 6, y(rate) - 5]);
      hits = points.map(([intensity, speed, row]) => {
        ctx.beginPath(); ctx.arc(x(intensity), y(speed), 5 * devicePixelRatio, 0, 2 * Math.PI);
        ctx.fillStyle = kernelColour(data, row.kernel); ctx.fill();
        return [x(intensity), y(speed), row, speed, intensity];
      });
      ctx.restore();
    }
  }

  function at(u) {
    const x = u.cursor.left * devicePixelRatio + u.bbox.left, y = u.cursor.top * devicePixelRatio + u.bbox.top;
    return hits.find((one) => Math.hypot(one[0] - x, one[1] - y) < 10 * devicePixelRatio);
  }

  function hover(u) {
    const hit = u.cursor.left >= 0 ? at(u) : null;
    tip.hidden = !hit;
    if (!hit) return;
    const [, , row, speed, intensity] = hit;
    tip.replaceChildren(...[cut(data.kernels[row.kernel]?.name ?? ""), `projected ${duration(1e3 * row.time_us)}, bound by ${row.bound_by}`, `${short(speed)} Gop/s, ${short(intensity)} operations a byte`].map((text) => h("div", {}, text)));
    tip.style.left = `${Math.max(0, Math.min(u.bbox.left / devicePixelRatio + u.cursor.left + 12, chart.clientWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${u.cursor.top + 24}px`;
  }

  place.append(h("div", { class: "tools" }, h("h3", {}, "Roofline"), h("label", { for: "roofline-gpu" }, "of"), choice), chart, note);
  make();
  chart.addEventListener("click", () => { const hit = at(plot); if (hit) open(hit[2].kernel); });
  themed.push(make);
  new ResizeObserver(() => { if (Math.abs(plot.width - chart.clientWidth) > 1) make(); }).observe(chart);
}
