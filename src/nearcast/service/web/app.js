// The page: a map, subscriptions, and how it does; everything comes from the service and goes there.

import { api, follow, patiently, setToken } from "./api.js";
import { Editor } from "./editor.js";
import { Frame } from "./frame.js";
import { showHint } from "./hint.js";
import { KINDS } from "./kinds.js";
import { Listing } from "./listing.js";
import { WorldMap } from "./map.js";
import { News } from "./news.js";
import { Panel } from "./panel.js";
import { Results } from "./results.js";
import { Shards } from "./shards.js";
import { keepTheme } from "./theme.js";

const $ = (id) => document.getElementById(id);
const AGAIN_MS = 400;   // between two looks at what changes

// However often it is asked for, do it once in a while.
function seldom(work) {
  let waiting;
  return () => { waiting ??= setTimeout(() => { waiting = undefined; work(); }, AGAIN_MS); };
}

function setState(state, says) {
  $("state").dataset.state = state;
  $("state").textContent = says;
}

// Ask for a token, and begin again with it.
function askToken(wasSent) {
  setState("waiting", "waiting for a token");
  $("entry").hidden = false;
  $("entry-fault").textContent = wasSent ? "The token is not known here." : "";
  $("token").focus();
  $("entry").addEventListener("submit", (event) => {
    event.preventDefault();
    setToken($("token").value);
    location.reload();
  });
}

async function begin() {
  let map;
  keepTheme($("theme"), () => { map?.recolour(); map?.motion.recolour(); });
  if (!document.createElement("canvas").getContext("webgl2")) throw new Error("the map needs WebGL, which this browser does not have");
  const wait = (error) => setState("lost", `not there yet, trying again: ${error.message}`);
  const world = await patiently(api.world, wait);
  $("listing").hidden = false;
  map = new WorldMap("map", new Frame(world), (id) => open(id));
  const panel = new Panel($("panel"));
  const listing = new Listing((id) => open(id));
  const news = new News(map, (id) => open(id));
  const shards = new Shards($("shards"), map, world);
  const redraw = () => map.subscriptions(listing.subscriptions, editor.isOpen);
  const results = new Results(map, world);
  const editor = new Editor(world, map, results, {
    saved(subscription) { listing.put(subscription); listing.arrange(); redraw(); news.say(`saved ${subscription.id}`); },
    removed(id) { listing.remove(id); redraw(); news.say(`deleted ${id}`); },
    opened() { map.unpin(); redraw(); },
    closed(id) { map.unpin(); redraw(); listing.arrange(); listing.focus(id); },
  });

  map.explains = (message) => editor.openId && results.fares(editor.draft(), message).catch(() => null);

  function open(id) {
    const subscription = listing.read(id);
    if (!KINDS[subscription?.kind]) return;
    listing.seen(id);
    map.goTo(subscription.region ?? subscription.location);
    editor.open(subscription);
  }

  async function reload() {
    const all = [];
    for await (const subscription of api.subscriptions()) all.push(subscription);
    listing.take(all);
    redraw();
  }

  const look = seldom(() => { if (editor.openId) editor.look(); });
  const reloadSeldom = seldom(() => reload().catch(() => {}));
  function changed({ subscription: id, message, change }) {
    if (!listing.read(id)) return reloadSeldom();   // made elsewhere
    const isOpen = editor.openId === id;
    if (isOpen) look();
    else listing.hear(id);
    if (change === "enter") news.reached(message, listing.read(id), isOpen);
  }

  const states = {};
  function stateOf(stream, state, why) {
    const wasLost = Object.values(states).includes("lost");
    states[stream] = state;
    const all = Object.values(states);
    if (all.includes("lost")) setState("lost", `connection lost, trying again${why ? `: ${why}` : ""}`);
    else if (states.feed === "refused") setState("live", "live; seeing messages needs a token with scope admin");
    else setState("live", "live");
    if (wasLost && !all.includes("lost")) reloadSeldom();
  }

  $("new").addEventListener("click", (event) => editor.open(null, { isByKeys: event.detail === 0 }));
  for (const choice of document.querySelectorAll("[data-layer]")) {
    choice.addEventListener("change", () => {
      map.toggle(choice.dataset.layer, choice.checked);
      if (choice.dataset.layer === "shards") shards.toggle(choice.checked);
    });
  }
  await Promise.all([map.ready, patiently(reload, wait)]);
  redraw();
  follow("v1/feed", (event, data) => {
    if (event === "messages") { map.take(data); news.shown(data); }
    else if (event === "stats") panel.take(data, listing.all.size);
  }, (state, why) => stateOf("feed", state, why));
  follow("v1/updates/events", (event, data) => { if (event === "update") changed(data); }, (state, why) => stateOf("updates", state, why));
  showHint($("hint"), () => editor.open());
  document.body.dataset.ready = "true";
}

begin().catch((error) => {
  if (error.status === 401) askToken(Boolean(sessionStorage.getItem("token")));
  else setState("lost", error.message);
});
