"use strict";
// Elements, formatted numbers, and the data of the page. Text from the run only becomes text nodes.

/** An element with attributes and children; a function as an attribute listens to the event of that name. */
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  fill(element, attributes, children);
  return element;
}

function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(element, attributes, children);
  return element;
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((one) => one !== null && one !== undefined));
}

const byId = (id) => document.getElementById(id);

/** 1234567 as 1.23 M; exact below 10,000. */
function short(value) {
  if (value === null || value === undefined) return "";
  const size = Math.abs(value);
  if (size < 10000) return Number.isInteger(value) ? exact(value) : String(Number(value.toPrecision(3)));
  for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (size >= unit) return `${(value / unit).toPrecision(3)} ${name}`;
}

const exact = (value) => (value === null || value === undefined ? "" : value.toLocaleString("en-US"));
const amount = (value, noun) => `${exact(value)} ${noun}${value === 1 ? "" : "s"}`;
const hex = (value) => (value === null || value === undefined ? "" : `0x${value.toString(16)}`);

function percent(part, whole) {
  if (!whole) return "";
  const value = (100 * part) / whole;
  return `${value >= 99.95 || value === 0 ? value.toFixed(0) : value < 0.1 ? "<0.1" : value.toFixed(1)} %`;
}

function duration(ns) {
  if (ns === null || ns === undefined) return "";
  for (const [unit, name] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) if (Math.abs(ns) >= unit) return `${(ns / unit).toPrecision(3)} ${name}`;
  return `${ns} ns`;
}

/** A name, with its middle omitted if it is too long. */
function cut(name, most = 70) {
  return name.length <= most ? name : `${name.slice(0, most - 22)} … ${name.slice(-18)}`;
}

/** Words in shell syntax; a run may lack them. */
const commandLine = (words) => words.map((one) => (/^[\w@%+=:,./-]+$/.test(one) ? one : JSON.stringify(one))).join(" ") || "(no command line was recorded)";

/** A piece of the page's data; null if the page has no such piece. */
async function unpack(name) {
  const element = byId(`data-${name}`);
  if (!element) return null;
  const bytes = Uint8Array.from(atob(element.textContent.trim()), (one) => one.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

/** The value of a colour variable, for canvases, which do not resolve variables. */
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Functions that redraw when the colour theme changes. */
const themed = [];

function setTheme(dark, keep) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  byId("theme").textContent = dark ? "Light" : "Dark";
  byId("theme").setAttribute("aria-label", `Switch to ${dark ? "light" : "dark"} colours`);
  if (keep) try { localStorage.setItem("luthier-theme", dark ? "dark" : "light"); } catch { /* no storage for files in this browser */ }
  for (const draw of themed) draw();
}

(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let kept = null;
  try { kept = localStorage.getItem("luthier-theme"); } catch { /* as before */ }
  setTheme(kept ? kept === "dark" : system.matches);
  system.addEventListener("change", (event) => setTheme(event.matches));
  byId("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme !== "dark", true));
})();
