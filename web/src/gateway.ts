// A gateway's clients, invitations and forwarded ports.

import type { Allowance, Api, Forward, GatewayClients, ReloadReport } from "./api.js";
import { byId, cells, confirmed, element, fill, Rows } from "./dom.js";
import { bytes, clock, rate } from "./format.js";

type Client = GatewayClients["clients"][number];
type Invitation = GatewayClients["invitations"][number];
type Act = (what: () => Promise<string>) => Promise<void>;

const DAY_SECONDS = 86_400;

export class GatewayView {
  private readonly clients: Rows<Client>;
  private readonly invitations: Rows<Invitation>;
  private readonly forwards: Rows<Forward>;

  constructor(
    private readonly api: Api,
    private readonly act: Act,
  ) {
    const remove = (label: string, press: () => Promise<void>): HTMLElement =>
      element("td", {}, element("button", { type: "button", class: "danger", onclick: () => void press() }, label));
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
          month(client.allowance),
        ]);
      },
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
      },
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
      },
    );
    byId<HTMLFormElement>("invite").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.invite(byId<HTMLInputElement>("invite-name").value.trim());
    });
    byId<HTMLFormElement>("limit").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.limit();
    });
    byId("reload").addEventListener("click", () => void this.reload());
    byId("renew").addEventListener("click", () => void this.renew());
    byId<HTMLFormElement>("forward").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.forward();
    });
  }

  show(answer: GatewayClients): void {
    this.clients.show(answer.clients);
    this.invitations.show(answer.invitations);
    this.forwards.show(answer.clients.flatMap((client) => client.forwards));
  }

  private async revoke(name: string): Promise<void> {
    if (!(await confirmed(`${name} will not get in any more, and its session ends.`, "Revoke"))) return;
    await this.act(async () => {
      await this.api.request("DELETE", `/v1/gateway/clients/${encodeURIComponent(name)}`);
      return `${name} is revoked`;
    });
  }

  private async invite(name: string): Promise<void> {
    await this.act(async () => {
      const body = { name, lifetime_seconds: DAY_SECONDS };
      const invited = await this.api.request<{ link: string }>("POST", "/v1/gateway/invitations", body);
      byId<HTMLOutputElement>("invite-link").value = invited.link;
      return `the link for ${name} works once, for a day`;
    });
  }

  private async limit(): Promise<void> {
    const client = byId<HTMLInputElement>("limit-client").value.trim();
    const rate = limitIn("limit-rate", 1e6);
    const quota = limitIn("limit-quota", 1e9);
    await this.act(async () => {
      const limited = await this.api.request<{ allowance: Allowance }>("PUT", "/v1/gateway/limits", { client, rate, quota });
      return `${client}: ${limited.allowance.rate === null ? "no limit a second" : "a limit a second"}, ${month(limited.allowance)} in this month`;
    });
  }

  private async reload(): Promise<void> {
    await this.act(async () => {
      const { applied, after_restart } = await this.api.request<ReloadReport>("POST", "/v1/gateway/reload");
      const now = applied.length > 0 ? `in force now: ${applied.join(", ")}` : "nothing new in the configuration";
      return after_restart.length > 0 ? `${now}; after the next start: ${after_restart.join(", ")}` : now;
    });
  }

  private async renew(): Promise<void> {
    const text = "The gateway becomes the version that is installed now. Devices connect again at once.";
    if (!(await confirmed(text, "Renew"))) return;
    await this.act(async () => {
      const { was } = await this.api.request<{ was: string }>("POST", "/v1/gateway/renewal");
      return `version ${was} hands over`;
    });
  }

  private async forward(): Promise<void> {
    const port = Number(byId<HTMLInputElement>("forward-port").value);
    const device_port = Number(byId<HTMLInputElement>("forward-to").value) || port;
    const client = byId<HTMLInputElement>("forward-client").value.trim() || null;
    await this.act(async () => {
      const body = { client, port, device_port, protocol: "tcp" };
      const made = await this.api.request<Forward>("PUT", "/v1/gateway/forwards", body);
      return `port ${made.port} leads to ${made.client}`;
    });
  }

  private async stop(forward: Forward): Promise<void> {
    await this.act(async () => {
      const { client, port, protocol } = forward;
      await this.api.request("DELETE", "/v1/gateway/forwards", { client, port, protocol });
      return `port ${port} leads nowhere any more`;
    });
  }
}

/** What a device has used of its month. */
function month(allowance: Allowance): string {
  const used = bytes(allowance.used);
  if (allowance.quota === null) return used;
  return `${used} of ${bytes(allowance.quota)}${allowance.slowed ? ", slowed" : ""}`;
}

/** The limit in a field: nothing is that of all devices, 0 is none. */
function limitIn(id: string, unit: number): number | "default" | "none" {
  const text = byId<HTMLInputElement>(id).value.trim();
  if (text === "") return "default";
  return Number(text) > 0 ? Math.round(Number(text) * unit) : "none";
}
