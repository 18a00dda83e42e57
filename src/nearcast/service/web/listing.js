// Which subscriptions are there? Those with news first, found by words or kind; a node each, made once, and only some
// of them on the page at a time. Nothing moves while someone is in the list.

import { KINDS, iconOf, wordsOf } from "./kinds.js";

const $ = (id) => document.getElementById(id);
const PAGE = 60;
const SORTED_EVERY_MS = 4000;

export class Listing {
  constructor(opened) {
    this.all = new Map();    // id -> { subscription, node, news, heard }
    this.most = PAGE;
    this.dirty = new Set();
    this.opened = opened;
    for (const place of ["sought", "sifted"]) $(place).addEventListener("input", () => this.arrange());
    $("more").addEventListener("click", () => { this.most += PAGE; this.arrange(); });
    $("list").addEventListener("click", (event) => {
      const id = event.target.closest("li")?.dataset.id;
      if (id !== undefined) opened(id);
    });
    setInterval(() => this.refresh(), 1000);
    setInterval(() => { if (!this.isInUse) this.arrange(); }, SORTED_EVERY_MS);
  }

  get subscriptions() { return [...this.all.values()].map(({ subscription }) => subscription); }

  get isInUse() { return $("list").matches(":hover, :focus-within"); }

  read(id) { return this.all.get(id)?.subscription; }

  // Take all that there are; what is not among them is gone.
  take(subscriptions) {
    const ids = new Set(subscriptions.map(({ id }) => id));
    for (const id of this.all.keys()) if (!ids.has(id)) this.all.delete(id);
    for (const subscription of subscriptions) this.put(subscription);
    this.arrange();
  }

  put(subscription) {
    const known = this.all.get(subscription.id) ?? { node: made(subscription.id), news: 0, heard: 0 };
    known.subscription = subscription;
    known.node.querySelector(".what").textContent = wordsOf(subscription);
    known.node.querySelector(".who").textContent = `${KINDS[subscription.kind]?.label ?? subscription.kind} · ${subscription.id}`;
    known.node.querySelector(".sign").innerHTML = iconOf(subscription.kind);
    this.all.set(subscription.id, known);
  }

  remove(id) {
    this.all.delete(id);
    this.arrange();
  }

  hear(id) {
    const known = this.all.get(id);
    known.news += 1;
    known.heard = performance.now();
    this.dirty.add(id);
  }

  seen(id) {
    const known = this.all.get(id);
    if (known) known.news = 0;
    this.dirty.add(id);
  }

  refresh() {
    for (const id of this.dirty) {
      const known = this.all.get(id), badge = known?.node.querySelector(".news");
      if (badge) badge.textContent = known.news ? `${known.news} new` : "";
    }
    this.dirty.clear();
  }

  arrange() {
    const sought = $("sought").value.trim().toLowerCase(), kind = $("sifted").querySelector(":checked")?.value ?? "";
    const said = ({ id, kind: own, ...rest }) => `${wordsOf(rest)} ${id} ${own} ${KINDS[own]?.label}`.toLowerCase();
    const holds = ({ subscription }) => said(subscription).includes(sought);
    const all = [...this.all.values()], fits = all.filter(holds);
    const shown = fits.filter(({ subscription }) => !kind || subscription.kind === kind)
      .sort((a, b) => (b.news > 0) - (a.news > 0) || b.heard - a.heard || (a.subscription.id < b.subscription.id ? -1 : 1));
    this.sift(fits, kind);
    this.refresh();
    const nodes = shown.slice(0, this.most).map(({ node }) => node), list = $("list");
    if (nodes.length !== list.children.length || nodes.some((node, i) => node !== list.children[i])) list.replaceChildren(...nodes);
    $("count").textContent = all.length ? String(all.length) : "";
    $("more").hidden = shown.length <= this.most;
    $("list-end").textContent = !all.length ? "There are none yet. Make one: drop a pin on the map and say what you want to hear of."
      : !shown.length ? "None fits. Look for another word." : shown.length > this.most ? `${shown.length - this.most} more` : "";
  }

  // How many there are of each kind, to choose among.
  sift(fits, chosen) {
    const counts = Object.fromEntries(Object.keys(KINDS).map((kind) => [kind, 0]));
    for (const { subscription } of fits) counts[subscription.kind] += 1;
    const key = JSON.stringify(counts);
    if (key === this.counted) return;
    this.counted = key;
    const choices = [["", "all kinds", "all", fits.length], ...Object.entries(counts).map(([kind, n]) => [kind, KINDS[kind].label, iconOf(kind), n])];
    const isFocused = $("sifted").contains(document.activeElement);
    $("sifted").querySelectorAll("label").forEach((label) => label.remove());
    $("sifted").insertAdjacentHTML("beforeend", choices.map(([kind, name, sign, n]) =>
      `<label title="${name}"><input type="radio" name="sift" value="${kind}"${kind === chosen ? " checked" : ""}>` +
      `${sign}<span class="unseen">${name}</span> ${n}</label>`).join(""));
    if (isFocused) $("sifted").querySelector(":checked")?.focus();
  }

  focus(id) {
    ((this.all.get(id)?.node.isConnected && this.all.get(id).node.firstChild) || $("new")).focus();
  }
}

function made(id) {
  const node = document.createElement("li");
  node.dataset.id = id;
  node.innerHTML = '<button type="button"><span class="sign"></span><span class="what"></span>' +
    '<span class="who quiet"></span><span class="news"></span></button>';
  return node;
}
