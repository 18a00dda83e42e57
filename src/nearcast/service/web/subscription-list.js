// The list of subscriptions: those with new updates first, filtered by text and kind. Each has one node, created once;
// only some are on the page at a time. The order does not change while the list is in use.

const $ = (id) => document.getElementById(id);
const PAGE = 60;
const SORT_EVERY_MS = 4000;

export class SubscriptionList {
  constructor(kinds, onSelect) {
    this.kinds = kinds;
    this.entries = new Map();    // id -> { subscription, node, nNew, updatedAt }
    this.limit = PAGE;
    this.changed = new Set();
    for (const id of ["search", "kind-filter"]) $(id).addEventListener("input", () => this.refresh());
    $("more").addEventListener("click", () => { this.limit += PAGE; this.refresh(); });
    $("list").addEventListener("click", (event) => {
      const id = event.target.closest("li")?.dataset.id;
      if (id !== undefined) onSelect(id);
    });
    setInterval(() => this.refreshBadges(), 1000);
    setInterval(() => { if (!this.isInUse) this.refresh(); }, SORT_EVERY_MS);
  }

  get subscriptions() { return [...this.entries.values()].map(({ subscription }) => subscription); }

  get isInUse() { return $("list").matches(":hover, :focus-within"); }

  get(id) { return this.entries.get(id)?.subscription; }

  // Replace all subscriptions.
  replaceAll(subscriptions) {
    const ids = new Set(subscriptions.map(({ id }) => id));
    for (const id of this.entries.keys()) if (!ids.has(id)) this.entries.delete(id);
    for (const subscription of subscriptions) this.put(subscription);
    this.refresh();
  }

  put(subscription) {
    const entry = this.entries.get(subscription.id) ?? { node: createNode(subscription.id), nNew: 0, updatedAt: 0 };
    entry.subscription = subscription;
    entry.node.querySelector(".words").textContent = this.kinds.wordsOf(subscription);
    entry.node.querySelector(".kind-and-id").textContent = `${this.kinds.labelOf(subscription)} · ${subscription.id}`;
    entry.node.querySelector(".kind-icon").innerHTML = this.kinds.iconOf(subscription);
    this.entries.set(subscription.id, entry);
  }

  remove(id) {
    this.entries.delete(id);
    this.refresh();
  }

  addUpdate(id) {
    const entry = this.entries.get(id);
    entry.nNew += 1;
    entry.updatedAt = performance.now();
    this.changed.add(id);
  }

  markSeen(id) {
    const entry = this.entries.get(id);
    if (entry) entry.nNew = 0;
    this.changed.add(id);
  }

  refreshBadges() {
    for (const id of this.changed) {
      const entry = this.entries.get(id), badge = entry?.node.querySelector(".badge");
      if (badge) badge.textContent = entry.nNew ? `${entry.nNew} new` : "";
    }
    this.changed.clear();
  }

  // Filter and sort the list.
  refresh() {
    const query = $("search").value.trim().toLowerCase(), kind = $("kind-filter").querySelector(":checked")?.value ?? "";
    const textOf = (one) => `${this.kinds.wordsOf(one)} ${one.id} ${one.kind} ${this.kinds.labelOf(one)}`.toLowerCase();
    const all = [...this.entries.values()], found = all.filter(({ subscription }) => textOf(subscription).includes(query));
    const shown = found.filter(({ subscription }) => !kind || subscription.kind === kind)
      .sort((a, b) => (b.nNew > 0) - (a.nNew > 0) || b.updatedAt - a.updatedAt || (a.subscription.id < b.subscription.id ? -1 : 1));
    this.showFilter(found, kind);
    this.refreshBadges();
    const nodes = shown.slice(0, this.limit).map(({ node }) => node), list = $("list");
    if (nodes.length !== list.children.length || nodes.some((node, i) => node !== list.children[i])) list.replaceChildren(...nodes);
    $("count").textContent = all.length ? String(all.length) : "";
    $("more").hidden = shown.length <= this.limit;
    $("list-end").textContent = !all.length ? "There are no subscriptions yet. Create one: drop a pin on the map and type some words."
      : !shown.length ? "No subscription matches the search." : shown.length > this.limit ? `${shown.length - this.limit} more` : "";
  }

  // Show how many subscriptions of each kind were found.
  showFilter(found, selected) {
    const counts = Object.fromEntries(this.kinds.all.map(({ kind }) => [kind, 0]));
    for (const { subscription } of found) counts[subscription.kind] = (counts[subscription.kind] ?? 0) + 1;
    const key = JSON.stringify(counts);
    if (key === this.shownCounts) return;
    this.shownCounts = key;
    const choices = [["", "all kinds", "all", found.length],
      ...Object.entries(counts).map(([kind, n]) => [kind, this.kinds.labelOf({ kind }), this.kinds.iconOf({ kind }), n])];
    const hadFocus = $("kind-filter").contains(document.activeElement);
    $("kind-filter").querySelectorAll("label").forEach((label) => label.remove());
    $("kind-filter").append(...choices.map((choice) => filterOf(...choice, choice[0] === selected)));
    if (hadFocus) $("kind-filter").querySelector(":checked")?.focus();
  }

  focus(id) {
    ((this.entries.get(id)?.node.isConnected && this.entries.get(id).node.firstChild) || $("new")).focus();
  }
}

function filterOf(kind, name, icon, n, isSelected) {
  const label = Object.assign(document.createElement("label"), { title: name });
  label.append(Object.assign(document.createElement("input"), { type: "radio", name: "kind-filter", value: kind, checked: isSelected }));
  label.insertAdjacentHTML("beforeend", icon);
  label.append(Object.assign(document.createElement("span"), { className: "visually-hidden", textContent: name }), ` ${n}`);
  return label;
}

function createNode(id) {
  const node = document.createElement("li");
  node.dataset.id = id;
  node.innerHTML = '<button type="button"><span class="kind-icon"></span><span class="words"></span>' +
    '<span class="kind-and-id muted"></span><span class="badge"></span></button>';
  return node;
}
