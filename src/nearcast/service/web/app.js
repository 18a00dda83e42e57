// The page: a map, subscriptions, and how it does; everything comes from the service and goes there.

import { api, follow, setToken } from "./api.js";
import { Editor } from "./editor.js";
import { box, WorldMap } from "./map.js";
import { Panel } from "./panel.js";

const $ = (id) => document.getElementById(id);
const subscriptions = new Map();
const unseen = new Map();  // id -> updates since it was looked at

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $("theme").setAttribute("aria-pressed", String(theme === "dark"));
  localStorage.setItem("theme", theme);
}

setTheme(localStorage.getItem("theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));

function setState(state, why) {
  $("state").dataset.state = state;
  $("state").textContent = state === "live" ? "live" : `connection lost, trying again${why ? `: ${why}` : ""}`;
}

async function start() {
  let world;
  try {
    world = await api.world();
  } catch (error) {
    if (error.status !== 401) throw error;
    $("token-line").hidden = false;
    $("token").addEventListener("change", () => { setToken($("token").value); location.reload(); });
    $("state").textContent = "give a token to begin";
    return;
  }
  const map = new WorldMap("map", world, pick);
  const panel = new Panel($("panel"));
  const editor = new Editor(map, {
    saved(subscription) { subscriptions.set(subscription.id, subscription); list(); say(`saved ${subscription.id}`); },
    removed(id) { subscriptions.delete(id); list(); say(`deleted ${id}`); },
  });
  $("words").append(...(world.words ?? []).map((word) => Object.assign(document.createElement("option"), { value: word })));
  $("new").addEventListener("click", () => editor.open());
  $("theme").addEventListener("click", () => {
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    map.recolour();
  });
  for (const choice of document.querySelectorAll("[data-layer]")) {
    choice.addEventListener("change", () => map.toggle(choice.dataset.layer, choice.checked));
  }

  function pick(id) {
    const subscription = subscriptions.get(id);
    if (!subscription) return;
    unseen.delete(id);
    list(id);
    map.goTo(subscription.region ?? subscription.location);
    editor.open(subscription);
  }

  function list(current) {
    $("list").replaceChildren(...[...subscriptions.values()].slice(0, 500).map(({ id, kind, keywords }) => {
      const item = document.createElement("li"), button = document.createElement("button"), news = unseen.get(id) ?? 0;
      button.type = "button";
      button.innerHTML = "<span></span><small></small>";
      button.firstChild.textContent = id;
      button.lastChild.textContent = `${kind} ${keywords}${news ? ` · ${news} new` : ""}`;
      if (id === current) button.setAttribute("aria-current", "true");
      button.addEventListener("click", () => pick(id));
      item.append(button);
      return item;
    }));
    map.show("subscriptions", [...subscriptions.values()].map(({ id, region, location }) => ({
      ...(region ? box(region) : { type: "Feature", geometry: { type: "Point", coordinates: location } }),
      properties: { id },
    })));
  }

  function say(text) { $("news").textContent = text; }

  await map.ready;
  for await (const subscription of api.subscriptions()) subscriptions.set(subscription.id, subscription);
  list();
  follow("v1/feed", (event, data) => {
    if (event === "messages") map.take(data);
    else if (event === "stats") panel.take(data);
  }, setState);
  follow("v1/updates/events", (event, update) => {
    if (event !== "update") return;
    unseen.set(update.subscription, (unseen.get(update.subscription) ?? 0) + 1);
    say(`${update.message} ${update.change === "enter" ? "reaches" : "leaves"} ${update.subscription}`);
    dirty = true;
  }, () => {});
  let dirty = false;
  setInterval(() => { if (dirty) { dirty = false; list(); } }, 1000);
  const drawShards = async () => { const { regions, loads } = await api.shards(); map.shards(regions, loads); };
  document.querySelector('[data-layer="shards"]').addEventListener("change", drawShards);
  document.body.dataset.ready = "true";
}

start().catch((error) => { $("state").textContent = error.message; $("state").dataset.state = "lost"; });
