// Built from web/src by `make web`.

// src/api.ts
var Failure = class extends Error {
  constructor(message, code) {
    super(message);
    this.code = code;
  }
};
var PATIENCE_MS = 4e4;
var Api = class {
  constructor(token) {
    this.token = token;
  }
  async get(path) {
    return this.request("GET", path);
  }
  async request(method, path, body) {
    let answer;
    try {
      answer = await fetch(path, {
        method,
        headers: { authorization: `Bearer ${this.token}`, "content-type": "application/json" },
        signal: AbortSignal.timeout(PATIENCE_MS),
        ...body === void 0 ? {} : { body: JSON.stringify(body) }
      });
    } catch {
      throw new Failure("the daemon does not answer; it may have ended, or starts again", "unreachable");
    }
    const told = await answer.json().catch(() => null);
    if (answer.ok) return told;
    const { code, message } = told ?? {};
    throw new Failure(message ?? `the daemon answers with status ${answer.status}`, code ?? "internal");
  }
};

// src/dom.ts
function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (typeof value === "function") made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== void 0 && value !== false) made.setAttribute(key, String(value));
  }
  made.append(...children.filter((child) => child !== null && child !== void 0));
  return made;
}
function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
}
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}
var Rows = class {
  constructor(parent, key, make, update) {
    this.parent = parent;
    this.key = key;
    this.make = make;
    this.update = update;
  }
  kept = /* @__PURE__ */ new Map();
  show(items) {
    const wanted = /* @__PURE__ */ new Set();
    let place = this.parent.firstElementChild;
    for (const item of items) {
      const key = this.key(item);
      if (wanted.has(key)) continue;
      wanted.add(key);
      let row = this.kept.get(key);
      if (!row) {
        row = this.make(item);
        this.kept.set(key, row);
      }
      this.update(row, item);
      if (row === place) place = place.nextElementSibling;
      else this.parent.insertBefore(row, place);
    }
    for (const [key, row] of this.kept) {
      if (wanted.has(key)) continue;
      row.remove();
      this.kept.delete(key);
    }
  }
};
function cells(count, heading = true) {
  const row = element("tr");
  for (let column = 0; column < count; column++) {
    row.append(heading && column === 0 ? element("th", { scope: "row" }) : element("td"));
  }
  return row;
}
function fill(row, texts) {
  texts.forEach((text, column) => {
    const cell = row.children[column];
    if (cell) setText(cell, text);
  });
}
function confirmed(question, word) {
  return new Promise((resolve) => {
    const dialog = element("dialog", { "aria-label": question });
    const answer = (yes2) => {
      dialog.close();
      dialog.remove();
      resolve(yes2);
    };
    const no = element("button", { type: "button", onclick: () => answer(false) }, "Cancel");
    const yes = element("button", { type: "button", class: "danger", onclick: () => answer(true) }, word);
    dialog.addEventListener("cancel", (event) => {
      event.preventDefault();
      answer(false);
    });
    dialog.append(element("p", {}, question), element("div", { class: "row" }, no, yes));
    document.body.append(dialog);
    dialog.showModal();
    no.focus();
  });
}

// src/format.ts
function rate(bits) {
  if (bits === null || bits === void 0) return "–";
  if (bits === 0) return "0";
  return bits < 1e6 ? `${(bits / 1e3).toFixed(0)} kbit/s` : `${(bits / 1e6).toFixed(1)} Mbit/s`;
}
function bytes(count) {
  for (const [size, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (count >= size) return `${(count / size).toFixed(1)} ${unit}`;
  }
  return `${count} B`;
}
function millis(micros) {
  return micros === null || micros === void 0 ? "–" : `${(micros / 1e3).toFixed(1)} ms`;
}
function percent(part, digits = 0) {
  return part === null || part === void 0 ? "–" : `${(part * 100).toFixed(digits)} %`;
}
function clock(unixMillis) {
  return new Date(unixMillis).toLocaleTimeString();
}

// src/flows.ts
var SHOWN = 100;
var FlowTable = class {
  constructor(body, filter, summary, pin) {
    this.filter = filter;
    this.summary = summary;
    this.rows = new Rows(
      body,
      (flow) => `${flow.protocol} ${flow.source} ${flow.destination}`,
      (flow) => {
        const row = cells(8);
        const host = flow.destination.replace(/:\d+$/, "").replace(/^\[|\]$/g, "");
        const button = element("button", { type: "button", "aria-label": `Hold flows to ${host}`, onclick: () => pin(host) }, "Hold…");
        row.append(element("td", {}, button));
        return row;
      },
      (row, flow) => {
        fill(row, [
          flow.program ?? "–",
          flow.protocol,
          flow.destination,
          flow.treatment,
          flow.network ?? "all",
          rate((flow.sending ?? 0) + (flow.receiving ?? 0)),
          millis(flow.rtt_us),
          flow.why
        ]);
      }
    );
    filter.addEventListener("input", () => this.draw());
  }
  rows;
  latest = { flows: [], left_out: 0, remarks: [] };
  show(flows) {
    this.latest = flows;
    this.draw();
  }
  draw() {
    const wanted = this.filter.value.trim().toLowerCase();
    const { flows, left_out, remarks } = this.latest;
    const matching = wanted === "" ? flows : flows.filter((flow) => describes(flow, wanted));
    this.rows.show(matching.slice(0, SHOWN));
    const more = matching.length > SHOWN ? `, the busiest ${SHOWN} shown` : "";
    const out = left_out > 0 ? `, ${left_out} more not listed` : "";
    const which = wanted === "" ? "" : ` of ${flows.length}`;
    setText(this.summary, [`${matching.length}${which} flows${more}${out}`, ...remarks].join(". "));
  }
};
function describes(flow, wanted) {
  const texts = [flow.program, flow.protocol, flow.source, flow.destination, flow.treatment, flow.network, flow.why];
  return texts.some((text) => text?.toLowerCase().includes(wanted));
}

// src/gateway.ts
var DAY_SECONDS = 86400;
var GatewayView = class {
  constructor(api, act) {
    this.api = api;
    this.act = act;
    const remove = (label, press) => element("td", {}, element("button", { type: "button", class: "danger", onclick: () => void press() }, label));
    this.clients = new Rows(
      byId("clients"),
      (client) => client.name,
      (client) => {
        const row = cells(7);
        row.append(remove("Revoke", () => this.revoke(client.name)));
        return row;
      },
      (row, client) => {
        fill(row, [
          client.name,
          client.connected ? "connected" : "away",
          client.addresses.join(" "),
          `${rate(client.traffic.sending)} to, ${rate(client.traffic.receiving)} from`,
          `${bytes(client.traffic.sent)} to, ${bytes(client.traffic.received)} from`,
          client.allowance.rate === null ? "none" : `${rate(client.allowance.rate)} each way`,
          month(client.allowance)
        ]);
      }
    );
    this.invitations = new Rows(
      byId("invitations"),
      (invitation) => invitation.name,
      (invitation) => {
        const row = cells(2);
        row.append(remove("Withdraw", () => this.revoke(invitation.name)));
        return row;
      },
      (row, invitation) => {
        const until = new Date(invitation.expires).toLocaleDateString();
        fill(row, [invitation.name, invitation.expired ? "expired" : `until ${until}, ${clock(invitation.expires)}`]);
      }
    );
    this.forwards = new Rows(
      byId("forwards"),
      (forward) => `${forward.protocol} ${forward.port}`,
      (forward) => {
        const row = cells(3);
        row.append(remove("Stop", () => this.stop(forward)));
        return row;
      },
      (row, forward) => {
        fill(row, [`${forward.protocol} ${forward.port}`, forward.client, String(forward.device_port)]);
      }
    );
    byId("invite").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.invite(byId("invite-name").value.trim());
    });
    byId("limit").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.limit();
    });
    byId("reload").addEventListener("click", () => void this.reload());
    byId("renew").addEventListener("click", () => void this.renew());
    byId("forward").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.forward();
    });
  }
  clients;
  invitations;
  forwards;
  show(answer) {
    this.clients.show(answer.clients);
    this.invitations.show(answer.invitations);
    this.forwards.show(answer.clients.flatMap((client) => client.forwards));
  }
  async revoke(name) {
    if (!await confirmed(`${name} will not get in any more, and its session ends.`, "Revoke")) return;
    await this.act(async () => {
      await this.api.request("DELETE", `/v1/gateway/clients/${encodeURIComponent(name)}`);
      return `${name} is revoked`;
    });
  }
  async invite(name) {
    await this.act(async () => {
      const body = { name, lifetime_seconds: DAY_SECONDS };
      const invited = await this.api.request("POST", "/v1/gateway/invitations", body);
      byId("invite-link").value = invited.link;
      return `the link for ${name} works once, for a day`;
    });
  }
  async limit() {
    const client = byId("limit-client").value.trim();
    const rate2 = limitIn("limit-rate", 1e6);
    const quota = limitIn("limit-quota", 1e9);
    await this.act(async () => {
      const limited = await this.api.request("PUT", "/v1/gateway/limits", { client, rate: rate2, quota });
      return `${client}: ${limited.allowance.rate === null ? "no limit a second" : "a limit a second"}, ${month(limited.allowance)} in this month`;
    });
  }
  async reload() {
    await this.act(async () => {
      const { applied, after_restart } = await this.api.request("POST", "/v1/gateway/reload");
      const now = applied.length > 0 ? `in force now: ${applied.join(", ")}` : "nothing new in the configuration";
      return after_restart.length > 0 ? `${now}; after the next start: ${after_restart.join(", ")}` : now;
    });
  }
  async renew() {
    const text = "The gateway becomes the version that is installed now. Devices connect again at once.";
    if (!await confirmed(text, "Renew")) return;
    await this.act(async () => {
      const { was } = await this.api.request("POST", "/v1/gateway/renewal");
      return `version ${was} hands over`;
    });
  }
  async forward() {
    const port = Number(byId("forward-port").value);
    const device_port = Number(byId("forward-to").value) || port;
    const client = byId("forward-client").value.trim() || null;
    await this.act(async () => {
      const body = { client, port, device_port, protocol: "tcp" };
      const made = await this.api.request("PUT", "/v1/gateway/forwards", body);
      return `port ${made.port} leads to ${made.client}`;
    });
  }
  async stop(forward) {
    await this.act(async () => {
      const { client, port, protocol } = forward;
      await this.api.request("DELETE", "/v1/gateway/forwards", { client, port, protocol });
      return `port ${port} leads nowhere any more`;
    });
  }
};
function month(allowance) {
  const used = bytes(allowance.used);
  if (allowance.quota === null) return used;
  return `${used} of ${bytes(allowance.quota)}${allowance.slowed ? ", slowed" : ""}`;
}
function limitIn(id, unit) {
  const text = byId(id).value.trim();
  if (text === "") return "default";
  return Number(text) > 0 ? Math.round(Number(text) * unit) : "none";
}

// src/history.ts
var KEPT = 180;
var MOST_NETWORKS = 64;
var NOTHING = { sending: 0, receiving: 0, rtt: null, loss: null };
function point(network) {
  const answering = network.paths.filter((path) => path.rtt_us !== null);
  const rtts = answering.map((path) => path.rtt_us);
  const rtt = rtts.length > 0 ? Math.min(...rtts) : network.direct?.rtt_us;
  const loss = answering.length > 0 ? Math.max(...answering.map((path) => path.loss)) : network.direct?.loss;
  const sum = (pick) => network.paths.reduce((total, path) => total + pick(path), 0);
  const sending = sum((path) => path.traffic.sending);
  const receiving = sum((path) => path.traffic.receiving);
  const isIdle = sending + receiving === 0;
  return {
    sending,
    // Direct flows are counted in the busier direction only.
    receiving: isIdle ? network.direct?.load ?? 0 : receiving,
    rtt: rtt ?? null,
    loss: network.connected ? loss ?? null : null
  };
}
var History = class {
  /** Latest last; all of one length. */
  networks = /* @__PURE__ */ new Map();
  length = 0;
  /** When the last sample came, in the clock of animation frames. */
  sampledAt = 0;
  add(status, now) {
    this.sampledAt = now;
    this.length = Math.min(this.length + 1, KEPT);
    const seen = new Map(status.networks.map((network) => [network.name, network]));
    for (const name of seen.keys()) {
      if (!this.networks.has(name) && this.networks.size < MOST_NETWORKS) {
        this.networks.set(name, new Array(this.length - 1).fill(NOTHING));
      }
    }
    for (const [name, points] of this.networks) {
      const network = seen.get(name);
      points.push(network ? point(network) : NOTHING);
      if (points.length > KEPT) points.shift();
      if (!network && points.every((past) => past === NOTHING)) this.networks.delete(name);
    }
  }
};

// src/graph.ts
function roundUp(value) {
  if (value <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  const digit = [1, 2, 5, 10].find((candidate) => candidate * size >= value) ?? 10;
  return digit * size;
}
function stroke(index) {
  const dashes = [[], [6, 3], [2, 2], [8, 3, 2, 3]];
  return { colour: `var(--line-${index % 8})`, dash: dashes[Math.floor(index / 8) % dashes.length] ?? [] };
}
function resolved(colour, styles) {
  const name = /^var\((.+)\)$/.exec(colour)?.[1];
  return name ? styles.getPropertyValue(name).trim() : colour;
}
function top(history2, figure) {
  let most = 0;
  for (let at = 0; at < KEPT; at++) {
    let sum = 0;
    for (const points of history2.networks.values()) {
      const point2 = points[points.length - 1 - at];
      const value = point2 ? figure.pick(point2) ?? 0 : 0;
      sum = figure.stacked ? sum + value : Math.max(sum, value);
    }
    most = Math.max(most, sum);
  }
  return roundUp(Math.max(most, figure.least));
}
function draw(figure, history2, slide) {
  const { canvas } = figure;
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (width === 0 || height === 0) return;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const context = canvas.getContext("2d");
  if (!context) return;
  const styles = getComputedStyle(canvas);
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  const most = top(history2, figure);
  const step = width / (KEPT - 2);
  const x = (fromEnd) => width - (fromEnd + slide - 1) * step;
  const y = (value) => height - value / most * (height - 14);
  grid(context, styles, width, y, most, figure.label);
  const below = new Array(KEPT).fill(0);
  let index = 0;
  for (const points of history2.networks.values()) {
    const { colour, dash } = stroke(index++);
    context.strokeStyle = context.fillStyle = resolved(colour, styles);
    context.setLineDash(dash);
    if (figure.stacked) area(context, points, below, figure.pick, x, y);
    else line(context, points, figure.pick, x, y);
  }
  context.setLineDash([]);
}
function grid(context, styles, width, y, most, label) {
  context.lineWidth = 1;
  context.strokeStyle = styles.getPropertyValue("--grid").trim();
  context.fillStyle = styles.getPropertyValue("--faint").trim();
  context.font = "11px system-ui, sans-serif";
  for (const part of [0.5, 1]) {
    const height = Math.round(y(most * part)) + 0.5;
    context.beginPath();
    context.moveTo(0, height);
    context.lineTo(width, height);
    context.stroke();
    context.fillText(label(most * part), 4, height - 3);
  }
}
function area(context, points, below, pick, x, y) {
  const upper = [];
  points.forEach((_, fromEnd) => {
    const point2 = points[points.length - 1 - fromEnd];
    upper.push((below[fromEnd] ?? 0) + (point2 ? pick(point2) ?? 0 : 0));
  });
  context.beginPath();
  upper.forEach((value, fromEnd) => context.lineTo(x(fromEnd), y(value)));
  for (let fromEnd = upper.length - 1; fromEnd >= 0; fromEnd--) context.lineTo(x(fromEnd), y(below[fromEnd] ?? 0));
  context.closePath();
  context.globalAlpha = 0.55;
  context.fill();
  context.globalAlpha = 1;
  context.beginPath();
  upper.forEach((value, fromEnd) => context.lineTo(x(fromEnd), y(value)));
  context.lineWidth = 1.5;
  context.stroke();
  upper.forEach((value, fromEnd) => below[fromEnd] = value);
}
function line(context, points, pick, x, y) {
  context.lineWidth = 1.5;
  context.beginPath();
  let isDrawing = false;
  points.forEach((_, fromEnd) => {
    const point2 = points[points.length - 1 - fromEnd];
    const value = point2 ? pick(point2) : null;
    if (value === null) {
      isDrawing = false;
    } else if (isDrawing) {
      context.lineTo(x(fromEnd), y(value));
    } else {
      context.moveTo(x(fromEnd), y(value));
      isDrawing = true;
    }
  });
  context.stroke();
}

// src/networks.ts
var LARGEST_PRIORITY = 255;
var NetworkCards = class {
  constructor(parent, change) {
    this.change = change;
    this.rows = new Rows(
      parent,
      (network) => network.name,
      (network) => this.make(network.name),
      (card, network) => this.update(card, network)
    );
  }
  rows;
  latest = [];
  show(networks) {
    this.latest = networks;
    this.rows.show(networks);
  }
  find(name) {
    return this.latest.find((network) => network.name === name);
  }
  make(name) {
    const figure = (label, key) => element("div", {}, element("dt", {}, label), element("dd", { "data-key": key }));
    const press = (label, key, what) => element("button", {
      type: "button",
      "data-key": key,
      "aria-label": `${label}, ${name}`,
      onclick: () => {
        const network = this.find(name);
        if (network) void what(network);
      }
    }, label);
    const toggle = (label, key) => press(label, key, (network) => this.toggle(network, key));
    return element(
      "article",
      { class: "network", "aria-label": `Network ${name}` },
      element("h3", {}, element("span", { class: "key", "aria-hidden": "true" }), name, element("span", { class: "state", "data-key": "state" })),
      element("p", { class: "why", "data-key": "why" }),
      element(
        "dl",
        {},
        figure("out", "sending"),
        figure("in", "receiving"),
        figure("share", "share"),
        figure("round trip", "rtt"),
        figure("loss", "loss"),
        figure("can send", "rate"),
        figure("under way", "queue"),
        figure("signal", "signal"),
        figure("priority", "priority")
      ),
      element(
        "div",
        { class: "row", role: "group", "aria-label": `Settings of ${name}` },
        press("Sooner", "sooner", (network) => this.prefer(network, -1)),
        press("Later", "later", (network) => this.prefer(network, 1)),
        toggle("Backup", "backup"),
        toggle("Metered", "metered"),
        toggle("Off", "off")
      )
    );
  }
  prefer(network, by) {
    const priority = Math.min(Math.max(network.priority + by, 0), LARGEST_PRIORITY);
    return this.change(network.name, { priority });
  }
  async toggle(network, key) {
    const others = this.latest.filter((other) => other !== network && other.connected && !other.off);
    if (key === "off" && !network.off && others.length === 0) {
      const question = `${network.name} is the last network in use. Without it nothing gets out.`;
      if (!await confirmed(question, "Switch it off")) return;
    }
    await this.change(network.name, { [key]: !network[key] });
  }
  update(card, network) {
    const now = point(network);
    const share = network.paths.reduce((sum, path) => sum + (path.share ?? 0), 0);
    const expected = network.paths.map((path) => path.rate).filter((value) => value !== null);
    const queue = network.paths.reduce((sum, path) => sum + path.in_flight, 0);
    const trouble = network.paths.find((path) => path.health === "suspect" || path.health === "dead");
    const texts = {
      state: network.connected ? trouble ? trouble.health : network.status : "not connected",
      why: trouble ? trouble.why : network.paths[0]?.why ?? network.direct?.why ?? network.why,
      sending: rate(now.sending),
      receiving: rate(now.receiving),
      share: network.paths.length > 0 ? percent(share) : percent(network.direct?.share),
      rtt: millis(now.rtt),
      loss: percent(now.loss, 1),
      rate: rate(expected.length > 0 ? Math.max(...expected) : null),
      queue: network.paths.length > 0 ? `${(queue / 1e3).toFixed(0)} kB` : "–",
      signal: network.direct?.wifi?.signal_dbm ? `${network.direct.wifi.signal_dbm} dBm` : "–",
      priority: String(network.priority)
    };
    for (const [key, text] of Object.entries(texts)) {
      const place = card.querySelector(`[data-key="${key}"]`);
      if (place) setText(place, text);
    }
    setAttribute(card, "data-state", network.connected ? trouble ? "trouble" : network.status : "gone");
    for (const key of ["backup", "metered", "off"]) {
      const button = card.querySelector(`button[data-key="${key}"]`);
      if (button) setAttribute(button, "aria-pressed", String(network[key]));
    }
    const index = this.latest.indexOf(network);
    card.querySelector(".key")?.style.setProperty("background", stroke(index).colour);
  }
};

// src/radio.ts
var SECOND_US = 1e6;
var LEAST_SLOT_US = 2e3;
var RadioView = class {
  constructor(line2, body, heardBody, summary) {
    this.line = line2;
    this.summary = summary;
    this.table = new Rows(
      body,
      (network) => network.interface,
      () => cells(7),
      (row, network) => {
        fill(row, [
          network.ssid,
          network.state,
          network.channel === void 0 ? "–" : String(network.channel),
          network.signal_dbm === void 0 ? "–" : `${network.signal_dbm.toFixed(0)} dBm`,
          percent(network.share),
          `${(network.slot_us / 1e3).toFixed(0)} ms`,
          String(network.queue)
        ]);
      }
    );
    this.heard = new Rows(
      heardBody,
      (heard) => heard.bssid,
      () => cells(4),
      (row, heard) => {
        fill(row, [
          heard.ssid ?? "(hidden)",
          heard.channel === void 0 ? "–" : String(heard.channel),
          heard.signal_dbm === void 0 ? "–" : `${heard.signal_dbm.toFixed(0)} dBm`,
          heard.security
        ]);
      }
    );
  }
  table;
  heard;
  show(radio) {
    this.table.show(radio.networks);
    const where = radio.channel === void 0 ? "between channels" : `on channel ${radio.channel} now`;
    setText(this.summary, radio.trouble ?? `The card is ${where}.`);
    const slots = radio.networks.filter((network) => network.slot_us >= LEAST_SLOT_US).sort((one, other) => (one.channel ?? 0) - (other.channel ?? 0));
    const part = (network) => {
      const together = slots.filter((other) => other === network || (other.channel ?? -1) === network.channel);
      return network.slot_us / together.length;
    };
    const cycle = slots.reduce((sum, network) => sum + part(network), 0);
    const parts = [];
    for (let at = 0; at < SECOND_US && cycle > 0; at += cycle) {
      slots.forEach((network) => {
        const index = radio.networks.indexOf(network);
        parts.push({ network, width: part(network), index });
      });
    }
    while (this.line.childElementCount > parts.length) this.line.lastElementChild?.remove();
    while (this.line.childElementCount < parts.length) this.line.append(element("span"));
    parts.forEach(({ network, width, index }, place) => {
      const bar = this.line.children[place];
      bar.style.setProperty("flex", `0 0 ${(width / SECOND_US * 100).toFixed(2)}%`);
      bar.style.setProperty("background", stroke(index).colour);
      setAttribute(bar, "title", network.ssid);
    });
    const told = slots.map((network) => `${network.ssid} ${(network.slot_us / 1e3).toFixed(0)} ms`).join(", ");
    setAttribute(this.line, "aria-label", `Slots of the radio in a second: ${told || "none"}`);
  }
  showHeard(heard) {
    this.heard.show(heard);
  }
};

// src/main.ts
var EACH_MS = 1e3;
var HIDDEN_MS = 1e4;
var SELDOM = 3;
var NO_RADIO_ROUNDS = 15;
var MOST_EVENTS = 300;
var TOKEN = "anabranch-token";
function takeToken() {
  const given = /^#token=([a-z2-7]+)$/.exec(location.hash)?.[1];
  if (given) {
    sessionStorage.setItem(TOKEN, given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(TOKEN);
}
var Page = class {
  constructor(api) {
    this.api = api;
    this.gatewayView = new GatewayView(api, (what) => this.act(what));
    this.legend = new Rows(
      byId("legend"),
      (name) => name,
      (name) => element("li", {}, element("span", { class: "key" }), name),
      (row, name) => {
        const index = [...this.past.networks.keys()].indexOf(name);
        row.querySelector(".key")?.style.setProperty("background", stroke(index).colour);
      }
    );
    this.events = new Rows(
      byId("events"),
      (event) => String(event.sequence),
      (event) => element("li", { "data-kind": event.kind }, element("time", {}, clock(event.time)), ` ${event.text}`),
      () => {
      }
    );
    this.rules = new Rows(
      byId("rules"),
      (rule) => rule.name,
      (rule) => {
        const row = cells(4);
        const press = () => this.unpin(rule.name);
        const button = element("button", { type: "button", class: "danger", "aria-label": `Remove ${rule.name}`, onclick: () => void press() }, "Remove");
        row.append(element("td", {}, rule.origin === "pin" ? button : null));
        return row;
      },
      (row, rule) => fill(row, [rule.name, rule.matches, rule.decides, rule.remark ?? ""])
    );
    this.neighbours = new Rows(
      byId("neighbours"),
      (neighbour) => neighbour.name,
      (neighbour) => {
        const row = cells(3);
        const press = () => this.forget(neighbour.name);
        row.append(element("td", {}, element("button", { type: "button", class: "danger", onclick: () => void press() }, "Forget")));
        return row;
      },
      (row, neighbour) => fill(row, [neighbour.name, neighbour.addresses.join(" "), neighbour.network ?? "not near"])
    );
    this.wire();
  }
  past = new History();
  figures = [
    { canvas: byId("graph-in"), pick: (point2) => point2.receiving, stacked: true, least: 1e6, label: rate },
    { canvas: byId("graph-out"), pick: (point2) => point2.sending, stacked: true, least: 1e6, label: rate },
    { canvas: byId("graph-rtt"), pick: (point2) => point2.rtt, stacked: false, least: 2e4, label: (value) => `${(value / 1e3).toFixed(0)} ms` },
    { canvas: byId("graph-loss"), pick: (point2) => point2.loss, stacked: false, least: 0.02, label: (value) => `${(value * 100).toFixed(0)} %` }
  ];
  cards = new NetworkCards(
    byId("networks"),
    (name, change) => this.act(async () => {
      await this.api.request("PUT", `/v1/networks/${encodeURIComponent(name)}`, change);
      return `${name} is changed until the daemon ends`;
    })
  );
  flows = new FlowTable(byId("flows"), byId("flow-filter"), byId("flow-summary"), (host) => {
    byId("pin-destination").value = host;
    byId("pin-network").focus();
  });
  radioView = new RadioView(byId("slots"), byId("radio-networks"), byId("heard"), byId("radio-summary"));
  gatewayView;
  legend;
  events;
  rules;
  neighbours;
  recent = [];
  round = 0;
  isOver = false;
  radioMissing = 0;
  role = null;
  still = matchMedia("(prefers-reduced-motion: reduce)");
  /** Asks again and again; never twice at once, so that a slow daemon is not asked more. */
  async run() {
    this.animate();
    while (!this.isOver) {
      const begun = performance.now();
      await this.refresh();
      const pause = (document.hidden ? HIDDEN_MS : EACH_MS) - (performance.now() - begun);
      await new Promise((done) => setTimeout(done, Math.max(pause, EACH_MS / 4)));
    }
  }
  async refresh() {
    try {
      const status = await this.api.get("/v1/status");
      this.showStatus(status);
      await this.showEvents();
      if (status.role === "device") await this.showDevice();
      else this.gatewayView.show(await this.api.get("/v1/gateway/clients"));
      byId("trouble").hidden = true;
    } catch (error) {
      this.trouble(error);
    }
    this.round++;
  }
  showStatus(status) {
    if (this.role !== status.role) {
      this.role = status.role;
      setAttribute(document.body, "data-role", status.role);
      document.title = `${status.name} – Anabranch`;
    }
    setText(byId("name"), status.name);
    setText(byId("state"), status.state.replace("-", " "));
    setAttribute(byId("state"), "data-state", status.state);
    setText(byId("why"), status.why);
    const far = status.far_end ? ` through ${status.far_end.name}` : "";
    const clients = status.connected_clients === null ? "" : `, ${status.connected_clients} devices connected`;
    const { traffic } = status;
    setText(
      byId("traffic"),
      `${status.interface} ${status.addresses.join(" ")}${far}${clients}: out ${rate(traffic.sending)} (${bytes(traffic.sent)}), in ${rate(traffic.receiving)} (${bytes(traffic.received)})`
    );
    setText(byId("gain"), proof(status));
    this.cards.show(status.networks);
    this.past.add(status, performance.now());
    this.legend.show([...this.past.networks.keys()]);
    this.describeGraphs(status.networks);
    const options = byId("pin-network");
    const names = status.networks.map((network) => network.name);
    if ([...options.children].map((option) => option.textContent).join("\n") !== names.join("\n")) {
      options.replaceChildren(...names.map((name) => element("option", {}, name)));
    }
  }
  /** The graphs in words, for who cannot see them. */
  describeGraphs(networks) {
    const each = (text) => networks.map((network) => `${network.name} ${text(network)}`).join(", ");
    const sum = (network, way) => rate(network.paths.reduce((total, path) => total + path.traffic[way], 0));
    const words = [
      `Received over the last three minutes; now ${each((network) => sum(network, "receiving"))}`,
      `Sent over the last three minutes; now ${each((network) => sum(network, "sending"))}`,
      "Round-trip time of each network over the last three minutes",
      "Loss of each network over the last three minutes"
    ];
    this.figures.forEach((figure, index) => {
      setAttribute(figure.canvas, "aria-label", `${words[index]}. Scale up to ${figure.label(top(this.past, figure))}.`);
    });
  }
  async showEvents() {
    const last = this.recent[0]?.sequence ?? 0;
    const fresh = await this.api.get(`/v1/events?since=${last}`);
    const restarted = fresh.length === 0 && last > 0 && this.round % SELDOM === 0;
    if (restarted) {
      const all = await this.api.get("/v1/events?since=0");
      if ((all[all.length - 1]?.sequence ?? 0) < last) this.recent = [...all].reverse();
    }
    this.recent = [...fresh.reverse(), ...this.recent].slice(0, MOST_EVENTS);
    this.events.show(this.recent);
  }
  async showDevice() {
    if (!byId("flow-section").open) {
      setText(byId("flow-summary"), "");
    } else {
      this.flows.show(await this.api.get("/v1/flows"));
    }
    if (this.round % SELDOM === 0) {
      this.rules.show(await this.api.get("/v1/rules"));
      const around = await this.api.get("/v1/neighbours");
      this.neighbours.show(around.neighbours);
      setText(byId("own-key"), around.public_key);
    }
    if (this.radioMissing > 0) {
      this.radioMissing--;
      return;
    }
    try {
      this.radioView.show(await this.api.get("/v1/radio"));
      byId("radio").hidden = false;
    } catch (error) {
      if (!(error instanceof Failure) || error.code === "unreachable") throw error;
      byId("radio").hidden = true;
      this.radioMissing = NO_RADIO_ROUNDS;
    }
  }
  animate() {
    let drawn = 0;
    const frame = (now) => {
      const isStill = this.still.matches;
      if (!document.hidden && !(isStill && drawn === this.past.sampledAt)) {
        const slide = isStill ? 1 : Math.min((now - this.past.sampledAt) / EACH_MS, 1);
        for (const figure of this.figures) draw(figure, this.past, slide);
        drawn = this.past.sampledAt;
      }
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }
  trouble(error) {
    const box = byId("trouble");
    setText(box, error instanceof Error ? error.message : String(error));
    box.hidden = false;
    if (error instanceof Failure && error.code === "not-allowed") {
      sessionStorage.removeItem(TOKEN);
      setText(byId("entry-trouble"), error.message);
      byId("page").hidden = true;
      byId("entry").hidden = false;
      this.isOver = true;
    }
  }
  /** Does something that was pressed, and says how it went. */
  async act(what) {
    const place = byId("done");
    try {
      setText(place, await what());
    } catch (error) {
      setText(place, error instanceof Error ? error.message : String(error));
    }
    await this.refresh();
  }
  wire() {
    byId("pin").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.pin();
    });
    byId("meet").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.meet();
    });
    byId("scan").addEventListener("click", () => {
      void this.act(async () => {
        const heard = await this.api.request("POST", "/v1/radio/scan");
        this.radioView.showHeard(heard);
        return `${heard.length} networks are heard`;
      });
    });
    byId("down").addEventListener("click", () => void this.down());
    byId("flow-section").addEventListener("toggle", () => void this.refresh());
  }
  async pin() {
    const wanted = byId("pin-destination").value.trim();
    const isAddress = /^[0-9a-f:.]+(\/\d+)?$/i.test(wanted) && /[.:]/.test(wanted);
    const treatment = byId("pin-treatment").value || null;
    const network = byId("pin-network").value;
    const networks = treatment === null || treatment === "direct" ? [network] : [];
    const prefix = wanted.includes("/") ? wanted : `${wanted}/${wanted.includes(":") ? 128 : 32}`;
    const flows = isAddress ? { destination: prefix } : { domain: wanted };
    await this.act(async () => {
      const rule = await this.api.request("POST", "/v1/rules", { ...flows, hold: { networks, treatment } });
      return `${rule.name}: ${rule.matches}: ${rule.decides}`;
    });
  }
  async unpin(name) {
    await this.act(async () => {
      await this.api.request("DELETE", `/v1/rules/${encodeURIComponent(name)}`);
      return `${name} is removed`;
    });
  }
  async meet() {
    const name = byId("meet-name").value.trim();
    const public_key = byId("meet-key").value.trim();
    await this.act(async () => {
      await this.api.request("PUT", `/v1/neighbours/${encodeURIComponent(name)}`, { public_key });
      return `${name} is known now`;
    });
  }
  async forget(name) {
    if (!await confirmed(`${name}'s key will not be known any more.`, "Forget")) return;
    await this.act(async () => {
      await this.api.request("DELETE", `/v1/neighbours/${encodeURIComponent(name)}`);
      return `${name} is forgotten`;
    });
  }
  async down() {
    const question = "The daemon takes back what it changed on this machine, and ends. This page ends with it.";
    if (!await confirmed(question, "Bring it down")) return;
    await this.act(async () => {
      const report = await this.api.request("POST", "/v1/down");
      return `down; ${report.undone.length} changes were taken back`;
    });
  }
};
function proof(status) {
  const { gain } = status;
  if (!gain) return "";
  const way = gain.direction === "sending" ? "out" : "in";
  const alone = rate(gain.best_alone);
  return gain.best_alone > gain.bonded ? `Bonded ${rate(gain.bonded)} ${way}; ${gain.network} alone could carry it too (${alone})` : `Bonded ${rate(gain.bonded)} ${way}; best network (${gain.network}) alone would be ${alone}`;
}
function start() {
  const token = takeToken();
  const isIn = token !== null;
  byId("entry").hidden = isIn;
  byId("page").hidden = !isIn;
  byId("enter").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(TOKEN, byId("token").value.trim());
    location.reload();
  });
  if (isIn) void new Page(new Api(token)).run();
}
window.addEventListener("hashchange", () => location.reload());
start();
