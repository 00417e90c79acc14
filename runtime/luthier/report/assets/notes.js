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
    this.isMerged = Boolean(data.summary.runs); // such a run has no folder that stays, or one without the runs' notes
    this.codeless = new Set();
    if (this.isMerged) return;
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

  /** The numbers of the kernels of a place: those of that name, or else those that are called so without template arguments. */
  kernels(place) {
    const having = (fits) => this.data.kernels.map((one, number) => (fits(one) ? number : -1)).filter((number) => number >= 0);
    const exact = place ? having((one) => one.name === place || one.symbol === place) : [];
    return exact.length || !place ? exact : having((one) => one.name.replace(/<.*$/, "") === place);
  }

  /** The numbers of the files of a name: that of this path, or else those whose paths end so. */
  files(name) {
    const exact = this.sources.findIndex(({ path }) => path === name);
    return exact >= 0 ? [exact] : this.sources.map(({ path }, number) => (path.endsWith(`/${name}`) ? number : -1)).filter((number) => number >= 0);
  }

  /** The shortest end of a file's path that no other file has. */
  nameOf(file) {
    const { path } = this.sources[file], parts = path.split("/");
    for (let at = parts.length - 1; at > 0; at--) {
      const end = parts.slice(at).join("/"), same = this.files(end);
      if (same.length === 1 && same[0] === file) return end;
    }
    return path;
  }

  /** File numbers and line of a place; null if it is no line of a file on this page. */
  line(place) {
    const [, name, line] = /^(.+):(\d+)$/.exec(place) ?? [], files = name ? this.files(name) : [];
    return files.length ? { files, line: Number(line) } : null;
  }

  about(number) { return this.all.filter((one) => this.kernels(one.place).includes(number)); }

  atLine(file, line) { return this.all.filter((one) => { const place = this.line(one.place); return place !== null && place.files.includes(file) && place.line === line; }); }

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
    return this.all.map(({ place, text }) => `## ${place || "*"}\n\n${text.split("\n").map((line) => (/^\\*## /.test(line) ? `\\${line}` : line)).join("\n")}\n`).join("\n");
  }

  save() {
    const address = URL.createObjectURL(new Blob([this.file()], { type: "text/markdown" }));
    h("a", { href: address, download: "notes.md" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  }

  async go(place) {
    const [number] = this.kernels(place), wanted = this.line(place);
    if (number !== undefined) return this.open(number);
    for (const one of new Set([opened?.number, ...this.data.coded])) {
      const code = one === undefined ? null : await unpack(`code-${one}`);
      const at = code ? code.source.line.findIndex((value, each) => value === wanted.line && wanted.files.includes(code.source.file[each])) : -1;
      if (at >= 0) return this.open(one, { place: [code.source.file[at], wanted.line], at: null });
    }
    this.codeless.add(place);
    this.draw();
  }

  item(note, withPlace) {
    const isKernel = this.kernels(note.place).length > 0, lacks = isKernel ? "" : this.line(note.place) === null ? "not in this run" : this.codeless.has(note.place) ? "no code of a kernel on this page" : "";
    const place = !withPlace || !note.place ? null : !lacks ? h("a", { class: "mono place", href: "#kernel", click: (event) => { event.preventDefault(); this.go(note.place); } }, cut(note.place)) : h("span", { class: "mono" }, `${cut(note.place)} (${lacks})`);
    return h("li", {}, h("span", { class: "says" }, place, place ? " " : null, note.text),
      this.isMerged ? null : h("span", { class: "acts" }, h("button", { type: "button", click: () => this.edit(note) }, "Edit"), h("button", { type: "button", click: () => this.change(note, null) }, "Remove")));
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
    byId("note-editor").hidden = this.isMerged;
    const names = h("datalist", { id: "note-places" });
    const submit = (event) => {
      event.preventDefault();
      const text = byId("note-text").value.trim(), place = byId("note-place").value.trim();
      if (!text) return;
      this.change(this.edited, { place: place === "*" ? "" : place, text });
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
