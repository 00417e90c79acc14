"use strict";
// Timeline of launches, with axes and zoom of uPlot and bars of our own.

const LANE = 30;

/** The colour of a kernel: its own if it is one of the most costly, otherwise a shared one. */
function kernelColour(data, number) {
  const at = data.timeline.colours.indexOf(number);
  return colour(at < 0 ? "--other" : `--c${at}`);
}

function drawTimeline(data, open) {
  const line = data.timeline, place = byId("timeline");
  if (!line.rows) {
    place.append(h("p", { class: "notice" }, "The run has no launches."));
    return;
  }
  const heights = line.lanes.map((_, lane) => (line.launches ? 1 + Math.max(0, ...line.launches.filter((one) => one[0] === lane).map((one) => one[1])) : 1));
  const starts = heights.map((_, at) => heights.slice(0, at).reduce((sum, one) => sum + one, 0));
  const total = heights.reduce((sum, one) => sum + one, 0);
  const several = new Set(line.lanes.map((one) => one[0])).size > 1;
  const names = line.lanes.map(([process, device, queue]) => `${several ? `${process} · ` : ""}GPU ${device < 0 ? "?" : device} · queue ${queue}`);
  const chart = h("div", { class: "chart" }), tip = h("div", { class: "tip", hidden: true });
  let plot = null, hits = [];

  function bars(u) {
    const { ctx } = u, { left, top, width, height } = u.bbox, unit = height / total;
    hits = [];
    ctx.save();
    ctx.beginPath(); ctx.rect(left, top, width, height); ctx.clip();
    const put = (lane, row, from, to, fillStyle, share, what) => {
      const x = u.valToPos(from, "x", true), end = u.valToPos(to, "x", true), y = top + (starts[lane] + row) * unit;
      if (end < left || x > left + width) return;
      const full = unit * 0.78, tall = Math.max(full * share, 1), wide = Math.max(end - x, devicePixelRatio);
      ctx.fillStyle = fillStyle;
      ctx.fillRect(x, y + unit * 0.11 + full - tall, wide, tall);
      hits.push([x, y, Math.max(wide, 3), unit, what]);
    };
    if (line.launches) for (const [lane, row, begin, end, kernel, number, instrumented] of line.launches) {
      const name = data.kernels[kernel]?.name ?? "unknown kernel";
      const what = `${cut(name)}, launch ${number}\n${end === null ? "times on the device are unknown" : `${duration(end - begin)}${data.emulated ? " of emulation" : ""}`}${instrumented ? "" : "\nnot instrumented"}`;
      put(lane, row, begin, end ?? begin, kernelColour(data, kernel), end === null ? 0.35 : 1, [what, kernel]);
    }
    else {
      const below = new Map();
      for (const [lane, bin, which, busy, launches] of line.bins) {
        const key = lane * 1e6 + bin, before = below.get(key) ?? 0, share = Math.min(busy / line.bin_ns, 1 - before);
        const kernel = line.colours[which], name = kernel === undefined ? "other kernels" : cut(data.kernels[kernel].name);
        const x = u.valToPos(bin * line.bin_ns, "x", true), end = u.valToPos((bin + 1) * line.bin_ns, "x", true);
        const y = top + starts[lane] * unit + unit * 0.11, full = unit * 0.78, tall = Math.max(full * share, 1);
        below.set(key, before + share);
        ctx.fillStyle = kernel === undefined ? colour("--other") : kernelColour(data, kernel);
        ctx.fillRect(x, y + full * (1 - before) - tall, Math.max(end - x, devicePixelRatio), tall);
        hits.push([x, y + full * (1 - before) - tall, Math.max(end - x, 3), tall, [`${name}\n${exact(launches)} launches begin here, busy ${percent(busy, line.bin_ns)}`, kernel]]);
      }
    }
    ctx.restore();
  }

  function make() {
    const width = chart.clientWidth || place.clientWidth;
    const scale = plot ? plot.scales.x : { min: 0, max: Math.max(line.end - line.begin, 1) };
    const zoom = { min: scale.min, max: scale.max };
    const narrow = width < 600;
    plot?.destroy();
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    plot = new uPlot({
      width, height: 44 + Math.min(Math.max(total * LANE, 60), 420), legend: { show: false }, padding: [8, 12, 0, 0],
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false } },
      scales: { x: { time: false, range: (u, min, max) => [min, max] }, y: { range: [0, total] } },
      series: [{}, { show: true, stroke: "transparent", points: { show: false } }],
      axes: [
        { ...axis, values: (u, ticks) => ticks.map((one) => duration(one)), space: 90 },
        { ...axis, grid: { show: false }, size: narrow ? 62 : several ? 190 : 120, splits: () => starts.map((start, at) => total - start - heights[at] / 2), values: () => (narrow ? names.map((one) => one.replace("GPU ", "").replace("queue ", "q")) : names), gap: 6 },
      ],
      hooks: { draw: [bars], setCursor: [hover] },
    }, [[0, Math.max(line.end - line.begin, 1)], [null, null]], chart);
    plot.setScale("x", zoom);
    chart.append(tip);
  }

  function at(u) {
    const x = u.cursor.left * devicePixelRatio + u.bbox.left, y = u.cursor.top * devicePixelRatio + u.bbox.top;
    return hits.findLast((one) => x >= one[0] - 2 && x <= one[0] + one[2] + 2 && y >= one[1] && y <= one[1] + one[3]);
  }

  function hover(u) {
    const hit = u.cursor.left >= 0 ? at(u) : null;
    tip.hidden = !hit;
    if (!hit) return;
    tip.replaceChildren(...hit[4][0].split("\n").map((text) => h("div", {}, text)));
    const left = u.bbox.left / devicePixelRatio + u.cursor.left;
    tip.style.left = `${Math.max(0, Math.min(left + 12, chart.clientWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${u.cursor.top + 24}px`;
  }

  const legend = line.colours.map((number) =>
    h("li", {}, h("span", { class: "swatch", style: { background: `var(--c${line.colours.indexOf(number)})` } }), cut(data.kernels[number].name, 60)));
  if (data.kernels.length > line.colours.length) legend.push(h("li", {}, h("span", { class: "swatch", style: { background: "var(--other)" } }), "all others"));
  const notes = [line.launches ? "" : `${exact(line.rows)} launches, drawn as the load of each queue in intervals of ${duration(line.bin_ns)}.`,
    line.unknown ? `${exact(line.unknown)} have unknown times on the device: they are low marks at the time when they were written.` : "",
    line.left_out ? `${line.left_out} more queues are not drawn.` : "", data.emulated ? "Times are the emulator's, not a GPU's; first launches compile." : "", "Drag to zoom in, double-click to reset."].filter(Boolean).join(" ");
  place.append(chart, h("ul", { class: "legend" }, legend), h("p", { class: "quiet" }, notes));
  make();
  chart.addEventListener("click", () => { const hit = at(plot); if (hit && hit[4][1] !== undefined && plot.select.width < 2) open(hit[4][1]); });
  themed.push(make);
  new ResizeObserver(() => { if (Math.abs(plot.width - chart.clientWidth) > 1) make(); }).observe(chart);
}
