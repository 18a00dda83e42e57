// Client of the service: requests whose errors name field, rule and value, and event streams that reconnect.

const RETRY_MS = 1000, FIRST_WAIT_MS = 500, MAX_WAIT_MS = 10_000;
let token = sessionStorage.getItem("token") ?? "";

export class RequestError extends Error {
  constructor(status, problem) {
    const errors = (problem.errors ?? []).map(({ field, rule, value }) => `${field} ${rule}; got ${JSON.stringify(value)}`);
    super(errors.join("\n") || problem.detail || `status ${status}`);
    this.status = status;
  }
}

export function setToken(value) {
  token = value;
  sessionStorage.setItem("token", value);
}

async function request(method, path, body) {
  const headers = { Accept: "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const text = await response.text();
  const answer = text ? JSON.parse(text) : null;
  if (!response.ok) throw new RequestError(response.status, answer ?? {});
  return answer;
}

// Repeat a request until it succeeds, or fails for a reason that waiting does not change. Calls `onRetry` per failure.
export async function retry(send, onRetry) {
  for (;;) {
    try {
      return await send();
    } catch (error) {
      if (error instanceof RequestError && ![429, 503].includes(error.status)) throw error;
      onRetry(error);
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

// A path with parameters; empty ones are left out, and a list repeats its name.
function withParameters(path, parameters) {
  const pairs = Object.entries(parameters).flatMap(([name, value]) => [value].flat().map((one) => [name, one]));
  return `${path}?${new URLSearchParams(pairs.filter(([, value]) => value !== "" && value !== undefined))}`;
}

const subscriptionPath = (id) => `v1/subscriptions/${encodeURIComponent(id)}`;

export const api = {
  config: () => request("GET", "v1/config"),
  kinds: () => request("GET", "v1/kinds"),
  shards: () => request("GET", "v1/shards"),
  put: ({ id, ...rest }) => request("PUT", subscriptionPath(id), rest),
  remove: (id) => request("DELETE", subscriptionPath(id)),
  results: (id, parameters) => request("GET", withParameters(`${subscriptionPath(id)}/results`, parameters)),
  explain: (id, message) => request("POST", `${subscriptionPath(id)}/explain`, message),
  preview: (subscription) => request("POST", "v1/preview", subscription),
  reaches: (subscriptions) => request("POST", "v1/reaches", subscriptions),
  subscriptions: (parameters) => request("GET", withParameters("v1/subscriptions", parameters)),
  clusters: (parameters) => request("GET", withParameters("v1/clusters", parameters)),
};

// Follow a stream of server-sent events with an Authorization header, which EventSource cannot send. Reconnects after
// the last event received. `onState` gets "live", "lost" with a reason, and "refused" if retrying is useless.
export function follow(path, onEvent, onState) {
  let lastId = "", wait = FIRST_WAIT_MS, timer;
  async function connect() {
    timer = null;
    try {
      const headers = { Accept: "text/event-stream" };
      if (token) headers.Authorization = `Bearer ${token}`;
      if (lastId) headers["Last-Event-ID"] = lastId;
      const response = await fetch(path, { headers });
      if (response.status === 410) lastId = "";  // updates after it are not retained
      if (!response.ok) throw new RequestError(response.status, await response.json().catch(() => ({})));
      onState("live");
      wait = FIRST_WAIT_MS;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ;) {
        const { done, value } = await reader.read();
        if (done) break;
        const events = (rest + value).split("\n\n");
        rest = events.pop();
        for (const event of events) lastId = dispatch(event, onEvent) ?? lastId;
      }
      onState("lost");
    } catch (error) {
      if (error.status === 401 || error.status === 403) return onState("refused", error.message);
      onState("lost", error instanceof RequestError ? error.message : "");
    }
    timer = setTimeout(connect, wait);
    wait = Math.min(2 * wait, MAX_WAIT_MS);
  }
  addEventListener("online", () => {   // reconnect at once
    if (!timer) return;
    clearTimeout(timer);
    connect();
  });
  connect();
}

// Parse an event, pass it on, and return its id.
function dispatch(event, onEvent) {
  const fields = { event: "message", data: [] };
  for (const line of event.split("\n")) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    const name = line.slice(0, colon), value = line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") fields.data.push(value);
    else fields[name] = value;
  }
  if (fields.data.length) onEvent(fields.event, JSON.parse(fields.data.join("\n")));
  return fields.id;
}
