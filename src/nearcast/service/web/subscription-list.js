// The list of subscriptions: those with new updates first, then a page of those that the service finds for the search
// and the kind. The order does not change while the list is in use.

import { api } from "./api.js";
import { debounce } from "./throttle.js";
import { formatInteger, formatShort } from "./wording.js";

const $ = (id) => document.getElementById(id);
const PAGE = 60, MAX_PAGE = 1000;
const SEARCH_PAUSE_MS = 150;
const SORT_EVERY_MS = 4000;

export class SubscriptionList {
  constructor(cache, kinds, { onSelect, onFilter }) {
    Object.assign(this, { cache, kinds, onFilter });
    this.found = [];             // the loaded pages, in the order of the service
    this.next = null;            // cursor of the next page
    this.total = this.all = 0;   // subscriptions that the filter selects, and all of them
    this.limit = PAGE;
    this.lastRequest = 0;
    this.nodes = new Map();      // id -> { node, subscription } of the rows on the page
    this.choices = new Map();    // kind -> its choice in the filter; "" for all kinds
    const search = debounce(() => this.applyFilter(), SEARCH_PAUSE_MS);
    $("search").addEventListener("input", search);
    $("kind-filter").addEventListener("input", search);
    $("more").addEventListener("click", () => this.run(() => this.showMore()));
    $("list").addEventListener("click", (event) => {
      const id = event.target.closest("li")?.dataset.id;
      if (id !== undefined) onSelect(id);
    });
    setInterval(() => this.refreshBadges(), 1000);
    setInterval(() => { if (!this.isInUse) this.refresh(); }, SORT_EVERY_MS);
  }

  get isInUse() { return $("list").matches(":hover, :focus-within"); }

  // True if the loaded pages hold everything that the filter selects.
  get isComplete() { return this.next === null; }

  // What the user searches for, as parameters of a request.
  get filter() {
    return { search: $("search").value.trim(), kind: $("kind-filter").querySelector(":checked")?.value ?? "" };
  }

  applyFilter() {
    this.limit = PAGE;
    this.onFilter();
    this.reload();
  }

  // Load the shown pages again.
  reload() { return this.run(() => this.load()); }

  // Run a request; if it fails, the list stays as it is, with the error below.
  async run(work) { await work().catch((error) => { $("list-end").textContent = error.message; }); }

  async load() {
    const number = ++this.lastRequest, { filter } = this;
    const answer = await api.subscriptions({ ...filter, limit: Math.min(this.limit, MAX_PAGE) });
    if (number !== this.lastRequest) return;
    this.found = [];
    this.total = answer.total;
    if (!filter.search) this.all = Object.values(answer.kinds).reduce((sum, n) => sum + n, 0);
    this.showFilter(answer.kinds);
    this.addPage(answer);
  }

  // Show the next page.
  async showMore() {
    this.limit += PAGE;
    const number = ++this.lastRequest;
    const answer = this.next === null ? null : await api.subscriptions({ ...this.filter, cursor: this.next, limit: PAGE });
    if (number !== this.lastRequest) return;
    if (answer) this.addPage(answer);
    else this.refresh();
  }

  addPage({ subscriptions, next }) {
    this.cache.put(subscriptions);
    this.found.push(...subscriptions);
    this.next = next;
    this.refresh();
  }

  remove(id) {
    this.found = this.found.filter((subscription) => subscription.id !== id);
    this.refresh();
    this.reload();
  }

  // True if a subscription matches the search and the kind, by the rule of the service.
  isSelected(subscription) {
    const { search, kind } = this.filter;
    const words = `${this.kinds.wordsOf(subscription)} ${subscription.id} ${subscription.kind} ${this.kinds.labelOf(subscription)}`.toLowerCase();
    return (!kind || subscription.kind === kind) && search.toLowerCase().split(/\s+/).every((word) => words.includes(word));
  }

  // The subscriptions to show: those with updates, then the loaded pages.
  get shown() {
    const updated = this.cache.updated.filter((subscription) => this.isSelected(subscription)), ids = new Set(updated.map(({ id }) => id));
    return [...updated, ...this.found.filter(({ id }) => !ids.has(id))];
  }

  refresh() {
    const { shown } = this, list = $("list"), nodes = shown.slice(0, this.limit).map((subscription) => this.nodeOf(subscription));
    if (nodes.length !== list.children.length || nodes.some((node, i) => node !== list.children[i])) list.replaceChildren(...nodes);
    for (const [id, { node }] of this.nodes) if (!node.isConnected) this.nodes.delete(id);
    this.refreshBadges();
    const total = Math.max(this.total, nodes.length), all = Math.max(this.all, total);
    $("count").textContent = !all ? "" : total === all ? formatInteger(all) : `${formatInteger(total)} of ${formatInteger(all)}`;
    $("more").hidden = this.isComplete && shown.length <= this.limit;
    $("list-end").textContent = !all ? "There are no subscriptions yet. Create one: drop a pin on the map and type some words."
      : !nodes.length ? "No subscription matches the search." : $("more").hidden ? "" : `${formatInteger(total - nodes.length)} more`;
  }

  // The row of a subscription: the one that shows it already, or a new one.
  nodeOf(subscription) {
    const { id } = subscription, existing = this.nodes.get(id);
    if (existing?.subscription === subscription) return existing.node;
    const node = existing?.node ?? createNode(id);
    node.querySelector(".words").textContent = this.kinds.wordsOf(subscription);
    node.querySelector(".kind-and-id").textContent = `${this.kinds.labelOf(subscription)} · ${id}`;
    node.querySelector(".kind-icon").innerHTML = this.kinds.iconOf(subscription);
    this.nodes.set(id, { node, subscription });
    return node;
  }

  refreshBadges() {
    for (const [id, { node }] of this.nodes) {
      const nNew = this.cache.nNewOf(id), badge = node.querySelector(".badge"), text = nNew ? `${formatShort(nNew)} new` : "";
      if (badge.textContent !== text) badge.textContent = text;
    }
  }

  // Show how many subscriptions of each kind were found. The choices stay, so that a click during an answer counts.
  showFilter(kinds) {
    const total = Object.values(kinds).reduce((sum, n) => sum + n, 0);
    for (const kind of new Set(["", ...this.kinds.all.map((one) => one.kind), ...Object.keys(kinds)])) {
      const choice = this.choices.get(kind) ?? this.addChoice(kind);
      choice.lastChild.textContent = ` ${formatShort(kind ? kinds[kind] ?? 0 : total)}`;
    }
  }

  addChoice(kind) {
    const choice = kind ? choiceOf(kind, this.kinds.labelOf({ kind }), this.kinds.iconOf({ kind })) : choiceOf("", "all kinds", "all");
    $("kind-filter").append(choice);
    this.choices.set(kind, choice);
    return choice;
  }

  focus(id) {
    ((this.nodes.get(id)?.node.isConnected && this.nodes.get(id).node.firstChild) || $("new")).focus();
  }
}

function choiceOf(kind, name, icon) {
  const label = Object.assign(document.createElement("label"), { title: name });
  label.append(Object.assign(document.createElement("input"), { type: "radio", name: "kind-filter", value: kind, checked: !kind }));
  label.insertAdjacentHTML("beforeend", icon);
  label.append(Object.assign(document.createElement("span"), { className: "visually-hidden", textContent: name }), "");
  return label;
}

function createNode(id) {
  const node = document.createElement("li");
  node.dataset.id = id;
  node.innerHTML = '<button type="button"><span class="kind-icon"></span><span class="words"></span>' +
    '<span class="kind-and-id muted"></span><span class="badge" title="messages that entered the result since it was opened"></span></button>';
  return node;
}
