"use strict";
// Notes of people: those of the run folder's notes.md, and those written on the page, which the browser keeps until they are in
// that file. A note is {place, text}; the place is a kernel, a source line (file:line), or empty for the whole run.

let notes = null;

class Notes {
  constructor(data, sources, open) {
    this.data = data;
    this.sources = sources;
    this.open = open;
    this.key = `luthier-notes-${data.summary.began_ns ?? ""}-${commandLine(data.summary.command)}`;
    this.added = [];
    this.removed = [];
    this.isKept = true;
    try {
      const kept = JSON.parse(localStorage.getItem(this.key)) ?? {}, valid = (list) => (Array.isArray(list) ? list.filter((one) => typeof one?.place === "string" && typeof one?.text === "string") : []);
      this.added = valid(kept.added);
      this.removed = valid(kept.removed);
    } catch { /* no storage for files in this browser, or not what this page wrote */ }
  }

  /** All notes: the folder's without those removed here, then those written here. */
  get all() {
    const inFolder = this.data.notes.filter((one) => !has(this.removed, one));
    return [...inFolder, ...this.added.filter((one) => !has(inFolder, one))];
  }

  /** Number of changes that are not in the folder's file. */
  get unsaved() {
    return this.added.filter((one) => !has(this.data.notes, one)).length + this.removed.filter((one) => has(this.data.notes, one)).length;
  }

  /** The number of the kernel of a place, or -1. */
  kernel(place) {
    return place ? this.data.kernels.findIndex((one) => one.name === place || one.symbol === place || one.name.replace(/<.*$/, "") === place) : -1;
  }

  /** File number and line of a place; null if it is no line of a file on this page. */
  line(place) {
    const [, name, line] = /^(.+):(\d+)$/.exec(place) ?? [];
    const file = name ? this.sources.findIndex(({ path }) => path === name || path.endsWith(`/${name}`)) : -1;
    return file < 0 ? null : [file, Number(line)];
  }

  about(number) { return this.all.filter((one) => this.kernel(one.place) === number); }

  atLine(file, line) { return this.all.filter((one) => { const place = this.line(one.place); return place !== null && place[0] === file && place[1] === line; }); }

  change(remove, add) {
    if (remove) {
      this.added = this.added.filter((one) => !same(one, remove));
      if (has(this.data.notes, remove)) this.removed.push(remove);
    }
    if (add) {
      this.removed = this.removed.filter((one) => !same(one, add));
      if (!has(this.data.notes, add) && !has(this.added, add)) this.added.push(add);
    }
    try { localStorage.setItem(this.key, JSON.stringify({ added: this.added, removed: this.removed })); } catch { this.isKept = false; }
    this.draw();
    opened?.noted?.();
  }

  /** The folder's file with all notes. */
  file() {
    return this.all.map(({ place, text }) => `## ${place || "*"}\n\n${text.replace(/^## /gm, "\\## ")}\n`).join("\n");
  }

  save() {
    const address = URL.createObjectURL(new Blob([this.file()], { type: "text/markdown" }));
    h("a", { href: address, download: "notes.md" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  }

  async go(place) {
    const number = this.kernel(place), line = this.line(place);
    if (number >= 0) return this.open(number);
    for (const one of new Set([opened?.number, ...this.data.coded])) {
      const code = one === undefined ? null : await unpack(`code-${one}`);
      if (code?.source.line.some((value, at) => value === line[1] && code.source.file[at] === line[0])) return this.open(one, { place: line, at: null });
    }
  }

  item(note, withPlace) {
    const known = this.kernel(note.place) >= 0 || this.line(note.place) !== null;
    const place = !withPlace || !note.place ? null : known ? h("a", { class: "mono place", href: "#kernel", click: (event) => { event.preventDefault(); this.go(note.place); } }, cut(note.place)) : h("span", { class: "mono" }, `${cut(note.place)} (not in this run)`);
    return h("li", {}, h("span", { class: "says" }, place, place ? " " : null, note.text),
      h("span", { class: "acts" }, h("button", { type: "button", click: () => this.edit(note) }, "Edit"), h("button", { type: "button", click: () => this.change(note, null) }, "Remove")));
  }

  /** Open the form, for a new note or to replace one. */
  edit(note) {
    byId("note-editor").open = true;
    this.edited = note;
    byId("note-place").value = note ? note.place : this.data.kernels[opened?.number]?.name ?? "";
    byId("note-text").value = note?.text ?? "";
    byId("note-text").focus();
  }

  draw() {
    const { all, unsaved } = this;
    const state = !unsaved ? "" : this.isKept ? `${amount(unsaved, "change")} only in this browser: save notes.md, and put it into the run folder.` : "This browser keeps nothing of a file: save notes.md now, and put it into the run folder.";
    byId("note-list").replaceChildren(...(all.length ? [h("ul", { class: "findings written" }, all.map((one) => this.item(one, true)))] : []));
    byId("note-state").replaceChildren(...(unsaved ? [h("button", { type: "button", click: () => this.save() }, "Save notes.md"), ` ${state}`] : []));
  }

  start() {
    const names = h("datalist", { id: "note-places" });
    const submit = (event) => {
      event.preventDefault();
      const text = byId("note-text").value.trim(), place = byId("note-place").value.trim();
      if (!text) return;
      this.change(this.edited, { place, text });
      this.edited = null;
      byId("note-text").value = "";
      byId("note-editor").open = false;
    };
    const suggest = () => names.replaceChildren(...[opened?.line?.() ?? "", ...this.data.kernels.map((one) => one.name)].filter(Boolean).slice(0, 500).map((value) => h("option", { value })));
    byId("note-editor").append(h("form", { class: "note-form", submit },
      h("label", {}, "About ", h("input", { id: "note-place", list: "note-places", placeholder: "the whole run; or a kernel, or file:line", focus: suggest })), names,
      h("label", { class: "hidden", for: "note-text" }, "Note"), h("textarea", { id: "note-text", rows: 3 }), h("button", { type: "submit" }, "Keep")));
    byId("note-editor").addEventListener("toggle", () => { if (byId("note-editor").open && !byId("note-text").value) this.edit(null); });
    this.draw();
  }
}

const same = (one, other) => one.place === other.place && one.text === other.text;
const has = (list, note) => list.some((one) => same(one, note));
